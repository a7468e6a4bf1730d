//! Paths below mounts that are hidden: seen from inside, and from the host.

#![forbid(unsafe_code)]

mod common;

use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt};

use belljar_testkit::{Installation, Mode, Sandbox, matrix};
use common::{USERS, has_one_user};

matrix! {
    walls what_is_masked_is_not_seen,
    engineless what_is_masked_is_out_of_reach,
    masks_that_would_hide_nothing_are_refused,
}

const SECRET: &str = "only for the host";

/// A directory of the host with things that may be seen and things that may not.
fn tree(belljar: &Installation) -> std::path::PathBuf {
    let data = belljar.make_directory("data");
    for path in ["secrets/deep", "open", "nest/inner"] {
        fs::create_dir_all(data.join(path)).expect("our own directory");
    }
    for path in [".env", "secrets/key", "secrets/deep/key", "nest/inner/key"] {
        fs::write(data.join(path), SECRET).expect("our own file");
    }
    fs::write(data.join("open/file"), "for everybody").expect("our own file");
    std::os::unix::fs::symlink("secrets/key", data.join("link")).expect("our own link");
    // Whoever is inside may write here by its rights, so that nothing but the masks holds.
    for path in ["", "open", "secrets", "secrets/deep", "nest", "nest/inner"] {
        let path = data.join(path);
        fs::set_permissions(&path, fs::Permissions::from_mode(0o777)).expect("our own");
    }
    for path in [".env", "secrets/key", "secrets/deep/key", "nest/inner/key", "open/file"] {
        let path = data.join(path);
        fs::set_permissions(&path, fs::Permissions::from_mode(0o666)).expect("our own");
    }
    data
}

fn masked<'a>(belljar: &'a Installation, mount: &str) -> Sandbox<'a> {
    let masks =
        ["--mask", "/data/.env", "--mask", "/data/secrets", "--mask", "/data/nest/inner/key"];
    belljar.create(&[&["--mount", mount], &masks[..]].concat())
}

fn users(sandbox: &Sandbox<'_>) -> impl Iterator<Item = &'static str> {
    let one = has_one_user(sandbox);
    USERS.into_iter().filter(move |user| *user != "root" || !one)
}

fn what_is_masked_is_not_seen(belljar: &Installation) {
    let data = tree(belljar);
    let sandbox = masked(belljar, &format!("{}:/data:ro", data.display()));
    let bare = belljar.create(&["--mount", &format!("{}:/data:ro", data.display())]);
    for user in users(&sandbox) {
        let ask = |sandbox: &Sandbox<'_>, line: &str| {
            sandbox.exec_with(&["--user", user], ["sh", "-c", line])
        };
        let see = "cat /data/.env /data/link /data/nest/inner/key; find /data/secrets; cat /data/open/file";
        // The twin: without masks all of it is there.
        let seen = ask(&bare, see);
        assert!(seen.text().contains(SECRET) && seen.text().contains("deep/key"), "{seen}");
        let seen = ask(&sandbox, see);
        assert_eq!(seen.text(), "/data/secrets\nfor everybody", "as {user}");
        let found = ask(&sandbox, "grep -rs 'for the host' /data /proc/self/root/data; echo $?");
        assert_eq!(found.text(), "1\n", "as {user}");
        let size = ask(&sandbox, "stat -c %s /data/.env /data/nest/inner/key");
        assert_eq!(size.text(), "0\n0\n", "as {user}");
    }
    // The files that the API reads are those of the inside.
    let read = belljar.run(["files", "cat", sandbox.id(), "/data/.env"]);
    assert_eq!(read.text(), "");
}

fn what_is_masked_is_out_of_reach(belljar: &Installation) {
    let data = tree(belljar);
    let inode = |path: &str| fs::symlink_metadata(data.join(path)).expect("it is there").ino();
    let before = [inode(".env"), inode("secrets"), inode("nest/inner/key")];
    let mount = format!("{}:/data:rw", data.display());
    if belljar.mode() == Mode::Runsc {
        // Its kernel changes files from outside of the mounts that hide them, where nothing keeps it from removing them.
        let flags = ["--mount", &mount, "--mask", "/data/.env"];
        match belljar.try_create(&flags) {
            Ok(_) => panic!("gVisor takes masks below a mount that can be written"),
            Err(refusal) => refusal.expect_code("not-enforceable"),
        }
        return;
    }
    let sandbox = masked(belljar, &mount);
    for user in users(&sandbox) {
        let ask = |line: &str| sandbox.exec_with(&["--user", user], ["sh", "-c", line]);
        // The twin: beside the masks everything can be done by who owns the mount inside, which root does not.
        if user == "user" {
            let line = "echo x > /data/open/new && mv /data/open/new /data/open/more && rm /data/open/more";
            ask(line).expect_success();
        }
        for line in [
            "echo x > /data/.env",
            "rm -f /data/.env",
            "mv /data/.env /data/open/env",
            "mv -f /data/open/file /data/.env",
            "ln /data/.env /data/open/env",
            "echo x > /data/secrets/new",
            "rmdir /data/secrets",
            "mv /data/secrets /data/open/secrets",
            "umount /data/.env",
            "umount -l /data/secrets",
            "mount --bind /data /data/open",
        ] {
            let tried = ask(line);
            assert_ne!(tried.code(), 0, "as {user}: {line}: {tried}");
            let read = ask("grep -rs 'for the host' /data; echo $?");
            assert_eq!(read.text(), "1\n", "as {user} after: {line}");
        }
        // A directory around a mask may be moved, and the mask goes with it.
        let moved = ask(
            "mv /data/nest /data/open/nest; cat /data/open/nest/inner/key /data/nest/inner/key 2>/dev/null; \
             mv /data/open/nest /data/nest; true",
        );
        assert_eq!(moved.text(), "", "as {user}");
    }
    // Seen from the host: everything is where it was, and says what it said.
    assert_eq!([inode(".env"), inode("secrets"), inode("nest/inner/key")], before);
    for path in [".env", "secrets/key", "secrets/deep/key", "nest/inner/key"] {
        assert_eq!(fs::read_to_string(data.join(path)).expect("it is there"), SECRET, "{path}");
    }
    assert!(!data.join("secrets/new").exists());
}

fn masks_that_would_hide_nothing_are_refused(belljar: &Installation) {
    let data = tree(belljar);
    let mount = format!("{}:/data:ro", data.display());
    let workspace = data.display().to_string();
    let check = |flags: &[&str], code: &str| match belljar.try_create(flags) {
        Ok(_) => panic!("{flags:?} is taken"),
        Err(refusal) => refusal.expect_code(code),
    };
    check(&["--mask", "/data/.env"], "mount-target-invalid");
    check(&["--mount", &mount, "--mask", "/data/absent"], "mount-source-unusable");
    check(&["--mount", &mount, "--mask", "/data/link"], "mount-source-unusable");
    check(&["--mount", &mount, "--mask", "/data/link/key"], "mount-source-unusable");
    check(&["--mount", &mount, "--mask", "/data/../etc/passwd"], "mount-target-invalid");
    check(&["--mount", &mount, "--mask", "/data"], "conflicting-options");
    let overlay = ["--workspace", &workspace, "--workspace-mode", "overlay"];
    check(&[&overlay[..], &["--mask", "/workspace/.env"]].concat(), "not-enforceable");
    let explained = belljar.run(["create", "--explain", "--mount", &mount, "--mask", "/data/.env"]);
    assert!(explained.to_string().contains("hidden: /data/.env"), "{explained}");
}
