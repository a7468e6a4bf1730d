//! The cases.

use std::fs;
use std::time::{Duration, Instant};

use belljar_codes::Code;
use belljar_policy::{Access, Asked, NetworkMode, Programs};

use super::{Bench, Case, Ended, Outcome, ensure, text};

macro_rules! cases {
    ($($name:ident),+ $(,)?) => {
        /// Every case, by name.
        pub const CASES: &[Case] = &[$(Case { name: stringify!($name), run: |bench| Box::pin($name(bench)) }),+];
    };
}

cases![
    a_command_gives_its_exit_code_and_both_streams,
    input_reaches_the_command,
    the_root_is_read_only_and_the_work_directories_are_not,
    nothing_of_the_host_is_visible,
    processes_of_the_host_are_invisible_and_the_first_is_ours,
    the_network_has_no_interface_but_loopback,
    the_workload_has_no_privilege,
    a_writable_root_takes_changes_and_the_template_stays,
    mounts_are_writable_or_not_as_asked,
    the_workspace_layer_keeps_changes_and_can_be_reset,
    memory_is_limited_and_the_kill_is_counted,
    processes_are_limited,
    the_disk_is_limited_in_bytes_and_inodes,
    a_timeout_kills_the_whole_tree,
    only_listed_programs_are_there,
    a_paused_sandbox_stands_still_and_then_goes_on,
    a_second_connection_is_served,
    an_id_in_use_is_refused_and_its_sandbox_lives_on,
    stopping_is_always_possible_and_leaves_nothing,
    what_cannot_be_enforced_is_refused_before_anything_is_made,
];

async fn a_command_gives_its_exit_code_and_both_streams(bench: &Bench<'_>) -> Outcome {
    bench
        .with(bench.spec(), async |sandbox| {
            let ended = sandbox.agent.shell("echo out; echo err >&2; exit 7").await?;
            ensure(ended.code == Some(7), || format!("{ended:?}"))?;
            ensure(ended.stdout == "out\n" && ended.stderr == "err\n", || format!("{ended:?}"))?;
            let killed = sandbox.agent.shell("kill -9 $$").await?;
            ensure(killed.signal == Some(9), || format!("{killed:?}"))
        })
        .await
}

async fn input_reaches_the_command(bench: &Bench<'_>) -> Outcome {
    bench
        .with(bench.spec(), async |sandbox| {
            let ended = sandbox.agent.run("tr a-z A-Z", b"through\n", 10_000).await?;
            ensure(ended.stdout == "THROUGH\n", || format!("{ended:?}"))?;
            let without = sandbox.agent.succeed("cat | wc -c").await?;
            ensure(without.trim() == "0", || format!("no input was given, {without} bytes came"))
        })
        .await
}

async fn the_root_is_read_only_and_the_work_directories_are_not(bench: &Bench<'_>) -> Outcome {
    bench
        .with(bench.spec(), async |sandbox| {
            for directory in ["/workspace", "/tmp", "/output", "/home/user", "/dev/shm"] {
                sandbox
                    .agent
                    .succeed(&format!("echo x > {directory}/file && rm {directory}/file"))
                    .await?;
            }
            for path in [
                "/file",
                "/usr/file",
                "/etc/passwd",
                "/usr/bin/sh",
                "/dev/file",
                "/run/file",
                "/proc/sys/kernel/core_pattern",
            ] {
                sandbox.agent.fail(&format!("echo x > {path}")).await?;
            }
            Ok(())
        })
        .await
}

async fn nothing_of_the_host_is_visible(bench: &Bench<'_>) -> Outcome {
    let marker = bench.scratch.join("host-secret");
    fs::write(&marker, "secret").map_err(text)?;
    let outcome = bench
        .with(bench.spec(), async |sandbox| {
            sandbox.agent.fail(&format!("cat {}", marker.display())).await?;
            for path in [
                "/etc/shadow",
                "/root/.ssh",
                "/var/run/docker.sock",
                "/run/docker.sock",
                "/dev/kmsg",
                "/dev/mem",
                "/sys/kernel",
            ] {
                sandbox.agent.fail(&format!("test -e {path}")).await?;
            }
            let homes = sandbox.agent.succeed("ls /home").await?;
            ensure(homes.trim() == "user", || format!("/home shows {homes}"))?;
            sandbox.agent.succeed("test -e /etc/passwd && test -e /usr/bin/env").await.map(|_| ())
        })
        .await;
    let _ = fs::remove_file(marker);
    outcome
}

async fn processes_of_the_host_are_invisible_and_the_first_is_ours(bench: &Bench<'_>) -> Outcome {
    bench
        .with(bench.spec(), async |sandbox| {
            let seen = sandbox.agent.succeed("ls -d /proc/[0-9]* | wc -l").await?;
            let count: u32 = seen.trim().parse().map_err(text)?;
            ensure((2..=8).contains(&count), || format!("{count} processes are visible"))?;
            sandbox.agent.succeed("test -d /proc/1").await?;
            let all = [
                "kill -9 1",
                "head -c 1 /proc/1/mem",
                "ls /proc/1/fd",
                "readlink /proc/1/exe",
                "cat /proc/1/environ",
            ];
            // gVisor shows everybody's program, environment and descriptors to everybody; the agent's say nothing.
            let shown = if bench.own_kernel { 3 } else { 0 };
            for attempt in &all[..all.len() - shown] {
                let ended = sandbox.agent.shell(attempt).await?;
                ensure(ended.code != Some(0) || attempt.starts_with("kill"), || {
                    format!("`{attempt}`: {ended:?}")
                })?;
            }
            // Signals to the first process are denied or ignored; either way it still answers.
            sandbox.agent.succeed("sh -c 'kill -0 $$'").await.map(|_| ())
        })
        .await
}

async fn the_network_has_no_interface_but_loopback(bench: &Bench<'_>) -> Outcome {
    bench
        .with(bench.spec(), async |sandbox| {
            let interfaces =
                sandbox.agent.succeed("tail -n +3 /proc/net/dev | cut -d: -f1").await?;
            ensure(interfaces.trim() == "lo", || format!("interfaces: {interfaces}"))?;
            let routes = sandbox.agent.succeed("tail -n +2 /proc/net/route").await?;
            ensure(routes.is_empty(), || format!("routes: {routes}"))
        })
        .await
}

async fn the_workload_has_no_privilege(bench: &Bench<'_>) -> Outcome {
    bench
        .with(bench.spec(), async |sandbox| {
            let status = sandbox.agent.succeed("cat /proc/self/status; id -u").await?;
            let all = [
                "CapInh:\t0000000000000000",
                "CapPrm:\t0000000000000000",
                "CapEff:\t0000000000000000",
                "Seccomp:\t2",
                "CapAmb:\t0000000000000000",
                "NoNewPrivs:\t1",
            ];
            // gVisor has no ambient capabilities, and never gives new privileges; it has no lines for either.
            let told = if bench.own_kernel { 4 } else { all.len() };
            for line in &all[..told] {
                ensure(status.contains(line), || format!("`{line}` is not in {status}"))?;
            }
            ensure(status.trim_end().ends_with("\n1000"), || format!("not uid 1000: {status}"))?;
            for attempt in [
                "mount -t tmpfs none /tmp",
                "unshare -U true",
                "chroot / true",
                "mknod /tmp/null c 1 3",
            ] {
                sandbox.agent.fail(attempt).await?;
            }
            Ok(())
        })
        .await
}

async fn a_writable_root_takes_changes_and_the_template_stays(bench: &Bench<'_>) -> Outcome {
    let mut spec = bench.spec();
    spec.writable_root = true;
    spec.user = crate::UserIds { uid: 0, gid: 0 };
    if let Err(refusal) = bench.backend.plan(&spec).await {
        return ensure(refusal.code == Code::NotEnforceable && refusal.remedy.is_some(), || {
            format!("{refusal:?}")
        });
    }
    bench
        .with(spec, async |sandbox| {
            sandbox
                .agent
                .succeed("echo x > /usr/belljar-conformance && echo y > /belljar-conformance")
                .await?;
            sandbox.agent.succeed("rm /usr/bin/env && test ! -e /usr/bin/env").await.map(|_| ())
        })
        .await?;
    for path in ["/usr/belljar-conformance", "/belljar-conformance"] {
        ensure(!std::path::Path::new(path).exists(), || format!("{path} appeared on the host"))?;
    }
    ensure(std::path::Path::new("/usr/bin/env").exists(), || "the host lost a program".to_owned())
}

async fn mounts_are_writable_or_not_as_asked(bench: &Bench<'_>) -> Outcome {
    for name in ["read-only", "read-write"] {
        bench.directory(name)?;
        fs::write(bench.scratch.join(name).join("given"), "given\n").map_err(text)?;
    }
    let mut spec = bench.spec();
    spec.mounts = vec![
        bench.mount("read-only", "/data/read-only", Access::ReadOnly)?,
        bench.mount("read-write", "/workspace", Access::ReadWrite)?,
    ];
    bench
        .with(spec, async |sandbox| {
            let given = sandbox.agent.succeed("cat /data/read-only/given /workspace/given").await?;
            ensure(given == "given\ngiven\n", || given.clone())?;
            sandbox.agent.fail("echo x > /data/read-only/given").await?;
            sandbox.agent.fail("touch /data/read-only/new").await?;
            sandbox.agent.succeed("echo made > /workspace/made").await.map(|_| ())
        })
        .await?;
    let made = fs::read_to_string(bench.scratch.join("read-write/made")).map_err(text)?;
    ensure(made == "made\n", || made.clone())?;
    let kept = fs::read_to_string(bench.scratch.join("read-only/given")).map_err(text)?;
    ensure(kept == "given\n" && !bench.scratch.join("read-only/new").exists(), || kept.clone())
}

async fn the_workspace_layer_keeps_changes_and_can_be_reset(bench: &Bench<'_>) -> Outcome {
    bench.directory("layered")?;
    fs::write(bench.scratch.join("layered/given"), "before\n").map_err(text)?;
    let mut spec = bench.spec();
    let mut mount = bench.mount("layered", "/workspace", Access::ReadWrite)?;
    mount.overlay = true;
    spec.mounts = vec![mount];
    bench
        .with(spec, async |sandbox| {
            sandbox
                .agent
                .succeed("cd / && echo after > /workspace/given && echo x > /workspace/new")
                .await?;
            let seen = sandbox.agent.succeed("cat /workspace/given").await?;
            ensure(seen == "after\n", || seen.clone())?;
            if let Err(error) = bench.backend.reset_workspace_layer(&sandbox.id).await {
                // A kernel of its own takes no orders from outside; then that is said, and nothing is lost.
                ensure(bench.own_kernel && error.code == Code::NotEnforceable, || text(&error))?;
                return sandbox.agent.succeed("grep after /workspace/given").await.map(|_| ());
            }
            let seen = sandbox.agent.succeed("cat /workspace/given; ls /workspace").await?;
            ensure(seen == "before\ngiven\n", || format!("after the reset: {seen}"))?;
            sandbox.agent.succeed("echo again > /workspace/new").await.map(|_| ())
        })
        .await?;
    let kept = fs::read_to_string(bench.scratch.join("layered/given")).map_err(text)?;
    ensure(kept == "before\n" && !bench.scratch.join("layered/new").exists(), || kept.clone())
}

async fn memory_is_limited_and_the_kill_is_counted(bench: &Bench<'_>) -> Outcome {
    let mut spec = bench.spec();
    spec.limits.memory_bytes = Asked::by_caller(64 << 20);
    bench
        .with(spec, async |sandbox| {
            sandbox.agent.succeed("head -c 8m /dev/zero | tail -c 8m | wc -c").await?;
            let ended =
                sandbox.agent.shell("head -c 400m /dev/zero | tail -c 399m | wc -c").await?;
            let counted = bench.backend.counters(&sandbox.id).await.map_err(text)?.oom_kills > 0;
            ensure(ended.stdout.trim() != "418381824", || "399 MiB fit into 64 MiB".to_owned())?;
            ensure(counted || ended.memory_exceeded, || {
                format!("nobody counted the kill of {ended:?}")
            })?;
            sandbox.agent.succeed("true").await.map(|_| ())
        })
        .await
}

async fn processes_are_limited(bench: &Bench<'_>) -> Outcome {
    let mut spec = bench.spec();
    spec.limits.pids = Asked::by_caller(16);
    bench
        .with(spec, async |sandbox| {
            sandbox.agent.succeed("for i in 1 2 3 4 5; do sleep 0.01 & done; wait").await?;
            // A shell that cannot fork fails; what it had started by then is still there.
            let line = "for i in $(seq 200); do sleep 60 >/dev/null & echo; done 2>/dev/null";
            let ended: Ended = sandbox.agent.run(line, b"", 60_000).await?;
            let started = ended.stdout.lines().count();
            ensure(ended.code != Some(0) && started < 40, || {
                format!("{started} processes at once: {ended:?}")
            })?;
            let counted = bench.backend.counters(&sandbox.id).await.map_err(text)?.pids_refused > 0;
            ensure(counted || ended.pids_exhausted, || format!("nobody noticed: {ended:?}"))
        })
        .await
}

async fn the_disk_is_limited_in_bytes_and_inodes(bench: &Bench<'_>) -> Outcome {
    let mut spec = bench.spec();
    spec.limits = spec.limits.with_disk(32 << 20);
    bench
        .with(spec, async |sandbox| {
            sandbox
                .agent
                .succeed("head -c 4m /dev/zero > /workspace/small && rm /workspace/small")
                .await?;
            let full = sandbox.agent.fail("head -c 100m /dev/zero > /workspace/large").await?;
            ensure(full.stderr.contains("No space left"), || format!("{full:?}"))?;
            sandbox.agent.succeed("rm /workspace/large").await?;
            let many = sandbox
                .agent
                .run(
                    "i=0; while [ $i -lt 4000 ]; do : > /workspace/f$i || exit 9; i=$((i+1)); done",
                    b"",
                    30_000,
                )
                .await?;
            ensure(many.code != Some(0), || "4000 files fit into 2048 inodes".to_owned())
        })
        .await
}

async fn a_timeout_kills_the_whole_tree(bench: &Bench<'_>) -> Outcome {
    bench
        .with(bench.spec(), async |sandbox| {
            let line = "(setsid sh -c 'trap \"\" TERM HUP; echo $$ > /tmp/daemon; while :; do sleep 0.05; done' &) ; \
                        while [ ! -s /tmp/daemon ]; do sleep 0.01; done; sleep 60";
            let ended = sandbox.agent.run(line, b"", 700).await?;
            ensure(ended.timed_out, || format!("{ended:?}"))?;
            let gone = sandbox.agent.shell("kill -0 $(cat /tmp/daemon) 2>&1").await?;
            ensure(gone.code != Some(0), || format!("the daemon survived: {gone:?}"))
        })
        .await
}

async fn only_listed_programs_are_there(bench: &Bench<'_>) -> Outcome {
    let mut spec = bench.spec();
    spec.programs = Some(Programs::parse("sh,cat,ls,echo").map_err(text)?);
    bench
        .with(spec, async |sandbox| {
            sandbox.agent.succeed("cat /etc/passwd > /dev/null && ls / > /dev/null").await?;
            let denied = sandbox.agent.fail("head -c 1 /etc/passwd").await?;
            ensure(denied.code == Some(126), || format!("by name: {denied:?}"))?;
            let absolute = sandbox.agent.fail("/usr/bin/head -c 1 /etc/passwd").await?;
            ensure(absolute.code == Some(126), || format!("by path: {absolute:?}"))
        })
        .await
}

async fn a_paused_sandbox_stands_still_and_then_goes_on(bench: &Bench<'_>) -> Outcome {
    let directory = bench.directory("counter")?;
    let mut spec = bench.spec();
    spec.mounts = vec![bench.mount("counter", "/counter", Access::ReadWrite)?];
    let count = || fs::metadata(directory.join("count")).map_or(0, |metadata| metadata.len());
    bench
        .with(spec, async |sandbox| {
            let counter = "(while :; do echo >> /counter/count; done) > /dev/null 2>&1 &";
            sandbox.agent.succeed(counter).await?;
            grows(&count).await?;
            if let Err(error) = bench.backend.pause(&sandbox.id).await {
                // Where nothing can do it, that is said; it then goes on.
                ensure(error.code == Code::NotEnforceable && error.remedy.is_some(), || {
                    format!("{error:?}")
                })?;
                return grows(&count).await;
            }
            bench.backend.pause(&sandbox.id).await.map_err(text)?;
            let stopped_at = count();
            tokio::time::sleep(Duration::from_millis(200)).await;
            ensure(count() == stopped_at, || "it went on while it was paused".to_owned())?;
            ensure(bench.backend.is_alive(&sandbox.id).await.map_err(text)?, || {
                "it died".to_owned()
            })?;
            bench.backend.resume(&sandbox.id).await.map_err(text)?;
            bench.backend.resume(&sandbox.id).await.map_err(text)?;
            grows(&count).await?;
            sandbox.agent.succeed("true").await?;
            // What follows is the end of a paused sandbox.
            bench.backend.pause(&sandbox.id).await.map_err(text)
        })
        .await
}

/// Waits until a number becomes larger.
async fn grows(count: &(impl Fn() -> u64 + Sync)) -> Outcome {
    let (start, deadline) = (count(), Instant::now() + Duration::from_secs(10));
    while count() <= start {
        ensure(Instant::now() < deadline, || "it does not go on".to_owned())?;
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    Ok(())
}

async fn a_second_connection_is_served(bench: &Bench<'_>) -> Outcome {
    bench
        .with(bench.spec(), async |sandbox| {
            let second = bench.backend.connect(&sandbox.id).await.map_err(text)?;
            drop(second);
            ensure(bench.backend.is_alive(&sandbox.id).await.map_err(text)?, || {
                "not alive".to_owned()
            })?;
            sandbox.agent.succeed("true").await.map(|_| ())
        })
        .await
}

async fn an_id_in_use_is_refused_and_its_sandbox_lives_on(bench: &Bench<'_>) -> Outcome {
    let first = bench.spec();
    let mut second = bench.spec();
    second.id = first.id.clone();
    bench
        .with(first, async |sandbox| {
            ensure(bench.backend.start(second).await.is_err(), || {
                "the id was given twice".to_owned()
            })?;
            ensure(bench.backend.is_alive(&sandbox.id).await.map_err(text)?, || {
                "the first one died".to_owned()
            })?;
            sandbox.agent.succeed("true").await.map(|_| ())
        })
        .await
}

async fn stopping_is_always_possible_and_leaves_nothing(bench: &Bench<'_>) -> Outcome {
    let never = super::fresh_id();
    bench.backend.stop(&never).await.map_err(text)?;
    let spec = bench.spec();
    let id = spec.id.clone();
    let mut started = bench.start(spec).await?;
    started.agent.succeed("(setsid sleep 1000 &)").await?;
    bench.backend.stop(&id).await.map_err(text)?;
    bench.backend.stop(&id).await.map_err(text)?;
    bench.backend.wait_gone(&id).await.map_err(text)?;
    ensure(!bench.backend.is_alive(&id).await.map_err(text)?, || "still alive".to_owned())?;
    ensure(bench.backend.connect(&id).await.is_err(), || "still answers".to_owned())?;
    let left: Vec<_> = bench
        .backend
        .orphans(&[])
        .await
        .map_err(text)?
        .into_iter()
        .filter(|orphan| orphan.sandbox.as_ref() == Some(&id))
        .collect();
    ensure(left.is_empty(), || format!("left behind: {left:?}"))
}

async fn what_cannot_be_enforced_is_refused_before_anything_is_made(bench: &Bench<'_>) -> Outcome {
    let mut spec = bench.spec();
    spec.network = NetworkMode::Allowlist;
    let id = spec.id.clone();
    match bench.backend.plan(&spec).await {
        Ok(_) => return Ok(()), // it can be enforced here; the egress suite shows that it is
        Err(error) => ensure(error.code == Code::NotEnforceable && error.remedy.is_some(), || {
            format!("{error:?}")
        })?,
    }
    ensure(bench.backend.start(spec).await.is_err(), || "it started all the same".to_owned())?;
    ensure(!bench.backend.is_alive(&id).await.map_err(text)?, || "something is alive".to_owned())
}
