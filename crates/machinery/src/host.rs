//! The `host` template: this machine's programs and libraries, and nothing of its data.
//!
//! Visible are `/usr` and what belongs to it, `/opt`, toolchains, and an `/etc` that is written here: users of the
//! sandbox, name resolution, and copies of a few public tables. Never `/home`, `/root`, `/var`, `/run`, sockets
//! or the host's own `/etc`.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use crate::host_path::HostPath;
use crate::names;
use crate::skeleton::Skeleton;

/// Top-level directories of programs. On merged systems all but `usr` are links into it.
const PROGRAM_DIRECTORIES: &[&str] =
    &["usr", "bin", "sbin", "lib", "lib32", "lib64", "libx32", "opt", "nix"];

/// Public files of `/etc` that programs in `/usr` lean on, with the reason.
const COPIED: &[(&str, &str)] = &[
    ("ld.so.cache", "the dynamic loader finds libraries by it"),
    ("ld.so.conf", "so does `ldconfig`"),
    ("localtime", "the time zone"),
    ("mime.types", "file types by name"),
    ("protocols", "names of network protocols"),
    ("services", "names of network ports"),
    ("shells", "which programs are shells"),
    ("debian_version", "installers ask which system this is"),
    ("redhat-release", "installers ask which system this is"),
    ("alpine-release", "installers ask which system this is"),
    ("ssl/openssl.cnf", "the TLS library's settings"),
];

/// Public directories of `/etc` that are copied with what is in them. Copies, because a sandbox starts faster with fewer
/// mounts.
const COPIED_DIRECTORIES: &[(&str, &str)] = &[
    ("alternatives", "`/usr/bin/awk` and many others are links into it"),
    ("ssl/certs", "public certificates of authorities"),
    ("ca-certificates", "the same, on other systems"),
    ("pki/tls/certs", "the same, on other systems"),
    ("pki/ca-trust/extracted", "the same, on other systems"),
    ("fonts", "font configuration for plotting"),
    ("ld.so.conf.d", "library directories"),
];

const PASSWD: &str = "root:x:0:0:root:/root:/bin/sh\n\
    user:x:1000:1000:user:/home/user:/bin/sh\n\
    belljar:x:65533:65533:belljar agent:/:/usr/sbin/nologin\n\
    nobody:x:65534:65534:nobody:/:/usr/sbin/nologin\n";
const GROUP: &str = "root:x:0:\ntty:x:5:\nuser:x:1000:\nbelljar:x:65533:\nnogroup:x:65534:\n";
const NSSWITCH: &str = "passwd: files\ngroup: files\nshadow: files\nhosts: files dns\nnetworks: files\n\
    protocols: files\nservices: files\n";

/// Where toolchains that live in somebody's home are shown.
const TOOLCHAINS: &str = "run/belljar/toolchains";

/// A root made of this host.
#[derive(Clone, Debug)]
pub struct HostRoot {
    pub skeleton: HostPath,
    /// Sources and targets (relative to the root), in mounting order.
    pub binds: Vec<(HostPath, String)>,
    /// Directories for `PATH`.
    pub search_path: Vec<String>,
}

impl HostRoot {
    pub fn build(templates: &Path, privileged: bool, network: bool) -> io::Result<Self> {
        let mut skeleton = Skeleton::mount_points();
        let mut binds = Vec::new();
        for name in PROGRAM_DIRECTORIES {
            let source = Path::new("/").join(name);
            match fs::symlink_metadata(&source) {
                Ok(metadata) if metadata.is_symlink() => {
                    skeleton.link(name, fs::read_link(&source)?);
                }
                Ok(metadata) if metadata.is_dir() => {
                    skeleton.directory(name);
                    binds.push((source, (*name).to_owned()));
                }
                _ => {}
            }
        }
        etc(&mut skeleton, network);
        for path in ["var", "var/log", "var/lib", "var/cache", "mnt", "srv"] {
            skeleton.directory(path);
        }
        skeleton.add("root", crate::skeleton::Item::Directory { mode: 0o700, agent: false });
        skeleton.link("var/tmp", "/tmp");
        skeleton.link("var/run", "/run");
        let mut search_path: Vec<String> =
            crate::rootfs::SEARCH_PATH.iter().map(|&path| path.to_owned()).collect();
        let toolchains = toolchains();
        if !toolchains.is_empty() {
            skeleton.directory(TOOLCHAINS);
        }
        for (name, source) in toolchains {
            let target = format!("{TOOLCHAINS}/{name}");
            skeleton.directory(&target);
            search_path.push(format!("/{target}/bin"));
            binds.push((source, target));
        }
        let skeleton = HostPath::open(&skeleton.build(templates, "host", privileged)?)?;
        let open = |(source, target): (PathBuf, String)| Ok((HostPath::open(&source)?, target));
        let binds = binds.into_iter().map(open).collect::<io::Result<_>>()?;
        Ok(Self { skeleton, binds, search_path })
    }
}

fn etc(skeleton: &mut Skeleton, network: bool) {
    for path in ["etc", "etc/ssl", "etc/pki", "etc/pki/tls", "etc/pki/ca-trust"] {
        skeleton.directory(path);
    }
    skeleton.file("etc/passwd", PASSWD);
    skeleton.file("etc/group", GROUP);
    skeleton.file("etc/nsswitch.conf", NSSWITCH);
    names::files(skeleton, network);
    skeleton.file("etc/profile", "");
    skeleton.link("etc/os-release", "../usr/lib/os-release");
    skeleton.link("etc/mtab", "/proc/self/mounts");
    for (name, _) in COPIED {
        if let Ok(content) = fs::read(Path::new("/etc").join(name)) {
            skeleton.file(&format!("etc/{name}"), content);
        }
    }
    for (name, _) in COPIED_DIRECTORIES {
        skeleton.copy(&format!("etc/{name}"), &Path::new("/etc").join(name));
    }
}

/// Toolchains of the invoking user that live outside `/usr`: what a version manager has made the default, or its only
/// version. Skipped where the system has the program itself.
fn toolchains() -> Vec<(&'static str, PathBuf)> {
    let home = std::env::var_os("HOME").map(PathBuf::from).unwrap_or_default();
    let candidates: [(&'static str, &str, PathBuf); 4] = [
        ("rust", "rustc", home.join(".rustup/toolchains")),
        ("python", "python3", home.join(".pyenv/versions")),
        ("node", "node", home.join(".nvm/versions/node")),
        ("go", "go", home.join("sdk")),
    ];
    candidates
        .into_iter()
        .filter(|(_, program, _)| {
            !["/usr/bin", "/usr/local/bin"]
                .iter()
                .any(|path| Path::new(path).join(program).exists())
        })
        .filter_map(|(name, program, versions)| Some((name, newest(&versions, program)?)))
        .collect()
}

/// The greatest version that has the program.
fn newest(versions: &Path, program: &str) -> Option<PathBuf> {
    let mut found: Vec<PathBuf> = fs::read_dir(versions)
        .ok()?
        .flatten()
        .map(|entry| entry.path())
        .filter(|path| path.join("bin").join(program).exists())
        .collect();
    found.sort();
    fs::canonicalize(found.pop()?).ok()
}
