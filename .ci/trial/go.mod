module github.com/leasewheel/leasewheel/.ci/trial

go 1.26.0
