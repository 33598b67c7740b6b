package main

// Where a change goes, with its tests and the planted bugs to run after it (make planted
// PLANTED=22). A name without a folder is of this package. TestPlacesOfChanges in
// cmd/leasewheel compares the names with the code.
//
// leasewheel run: cmd/leasewheel/internal/run/run.go, cmd/leasewheel/internal/run/kind.go,
// cmd/leasewheel/internal/run/supervise.go, cmd/leasewheel/internal/run/guard_linux.go,
// cmd/leasewheel/internal/run/messages.go.
// Tests: run_test.go, run_kind_test.go, run_loss_test.go, run_signal_test.go, run_signal_real_test.go, child_linux_test.go,
// cmd/leasewheel/internal/run/supervise_linux_test.go, cmd/leasewheel/internal/run/guard_linux_test.go.
// Planted: 41, 150, 273, 283, 318, 321, 460, 461, 462, 463, 464, 508, 537, 599.
//
// Servers, and the passwords for them: cmd/leasewheel/internal/connect/server.go,
// cmd/leasewheel/internal/connect/credentials.go, cmd/leasewheel/internal/connect/line_unix.go;
// the folder without one: cmd/leasewheel/internal/connect/folder.go.
// Tests: credentials_test.go, folder_linux_test.go, cmd/leasewheel/internal/connect/folder_test.go,
// cmd/leasewheel/internal/connect/folder_linux_test.go,
// cmd/leasewheel/internal/connect/password_test.go,
// cmd/leasewheel/internal/connect/certificate_test.go.
// Planted: 148, 154, 235, 266, 280, 389, 390, 391, 393, 465, 509, 510, 597.
//
// Engines that are no Redis, by the scheme of a URL: cmd/leasewheel/internal/connect/engine.go,
// cmd/leasewheel/engines/leasewheel-postgres/postgres.go and cmd/leasewheel/engines/leasewheel-etcd/etcd.go,
// of a module of their own.
// Tests: cmd/leasewheel/engines/leasewheel-postgres/command_test.go,
// cmd/leasewheel/engines/leasewheel-etcd/command_test.go.
//
// leasewheel queue: cmd/leasewheel/internal/queue/access.go, cmd/leasewheel/internal/queue/list.go,
// cmd/leasewheel/internal/queue/change.go.
// Tests: queue_test.go, security_queue_test.go.
// Planted: 224.
//
// leasewheel watch: cmd/leasewheel/internal/look/watch.go, cmd/leasewheel/internal/look/watch_print.go,
// cmd/leasewheel/internal/look/screen.go, cmd/leasewheel/internal/connect/request_limit.go,
// docs/watch.schema.json.
// Tests: watch_test.go, cmd/leasewheel/internal/look/screen_test.go,
// cmd/leasewheel/internal/look/screen_linux_test.go.
// Planted: 151, 348.
//
// leasewheel demo: cmd/leasewheel/internal/demo/play.go, cmd/leasewheel/internal/demo/worker.go,
// cmd/leasewheel/internal/demo/report.go; its page: cmd/leasewheel/internal/demo/timeline.go,
// cmd/leasewheel/internal/demo/chart.go, cmd/leasewheel/internal/demo/html.go.
// Tests: cmd/leasewheel/internal/demo/report_test.go, cmd/leasewheel/internal/demo/html_test.go.
//
// leasewheel bench: cmd/leasewheel/internal/bench/renewal.go, cmd/leasewheel/internal/bench/watchdog.go.
// Tests: cmd/leasewheel/internal/bench/bench_test.go.
// Planted: 469.
//
// Pages and charts: cmd/leasewheel/internal/page/page.go, cmd/leasewheel/internal/page/canvas.go,
// cmd/leasewheel/internal/reportfile/file.go, cmd/leasewheel/internal/reportfile/repeat.go.
// Tests: cmd/leasewheel/internal/accuracy/accuracy_test.go,
// cmd/leasewheel/internal/reportfile/file_test.go, cmd/leasewheel/internal/reportfile/repeat_test.go.
// Planted: 236.
//
// The rights of users: lock/redisstore/rights.go and the row of each kind, such as
// lock/redisstore/fair.go fair; lock/delayqueue/keys.go Use();
// cmd/leasewheel/internal/acl/rights.go, cmd/leasewheel/internal/acl/acl.go, SECURITY.md.
// Tests: security_test.go, acl_test.go, cmd/leasewheel/internal/acl/keys_test.go.
// Planted: 97, 347.
//
// Help, completion, man pages, exit codes: cmd/leasewheel/internal/root/root.go,
// cmd/leasewheel/internal/root/help.go, cmd/leasewheel/internal/root/completion.go,
// cmd/leasewheel/internal/exit/exit.go, cmd/leasewheel/internal/interrupt/interrupt.go.
// What a line may have in it: cmd/leasewheel/internal/output/text.go; progress on a terminal:
// cmd/leasewheel/internal/terminal/meter.go.
// Tests: root_test.go, completion_test.go, man_test.go, run_signal_test.go,
// cmd/leasewheel/internal/root/completion_test.go,
// cmd/leasewheel/internal/interrupt/interrupt_test.go,
// cmd/leasewheel/internal/terminal/foreground_linux_test.go,
// cmd/leasewheel/internal/terminal/meter_linux_test.go.
// Planted: 153, 319, 327, 346, 466, 467, 468.
//
// Releases, the size of the binary: .ci/release, .github/workflows/release.yml.
// Tests: binary_test.go.
