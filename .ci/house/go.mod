module github.com/leasewheel/leasewheel/.ci/house

go 1.26.0
