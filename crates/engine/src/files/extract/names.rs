//! Which names an archive may have.
//!
//! Remembers every name by a digest, so that memory depends on the number of entries and not on what they are called.

use std::collections::{HashMap, HashSet};
use std::ffi::OsString;
use std::os::unix::ffi::OsStringExt;
use std::path::PathBuf;

use belljar_policy::archive::{Astray, DEEPEST, check_link};
use sha2::{Digest, Sha256};

use super::ExtractLimits;

/// What file systems take as one name.
const LONGEST_COMPONENT: usize = 255;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum EntryKind {
    File,
    Directory,
    Link,
}

#[derive(Debug)]
pub(super) struct Names {
    known: HashMap<Key, EntryKind>,
    /// Links; without regard to case unless names may differ in it.
    links: HashSet<Key>,
    longest: usize,
    /// Where the archive is from a sandbox.
    exact: bool,
}

type Key = [u8; 16];

/// A name that may be extracted.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Admitted {
    /// Components without separators; none for the target itself.
    pub(super) components: Vec<Vec<u8>>,
    /// Directories above it that no entry has named so far, and the entry itself.
    pub(super) new: usize,
}

impl Admitted {
    pub(super) fn path(&self) -> PathBuf {
        joined(&self.components)
    }
}

impl Names {
    pub(super) fn new(limits: &ExtractLimits) -> Self {
        Self {
            known: HashMap::new(),
            links: HashSet::new(),
            longest: limits.path_length,
            exact: limits.outward_links,
        }
    }

    /// Admits an entry's name, or says why not.
    pub(super) fn admit(&mut self, name: &[u8], kind: EntryKind) -> Result<Admitted, &'static str> {
        let components = self.components(name)?;
        if components.is_empty() && kind != EntryKind::Directory {
            return Err("has no name");
        }
        let mut new = 0;
        for length in 1..components.len() {
            let above = components.get(..length).unwrap_or_default();
            if self.links.contains(&self.link_key(above)) {
                return Err("leads through a link of the archive");
            }
            match self.known.insert(key(above), EntryKind::Directory) {
                None => new += 1,
                Some(EntryKind::Directory) => {}
                Some(EntryKind::File | EntryKind::Link) => {
                    return Err("is below something that is not a directory");
                }
            }
        }
        if components.is_empty() {
            return Ok(Admitted { components, new });
        }
        let link = self.link_key(&components);
        if self.links.contains(&link) {
            return Err("has the name of a link of the archive");
        }
        match self.known.insert(key(&components), kind) {
            None => new += 1,
            Some(EntryKind::Directory) if kind == EntryKind::Directory => {}
            Some(_) => return Err("occurs twice"),
        }
        if kind == EntryKind::Link {
            self.links.insert(link);
        }
        Ok(Admitted { components, new })
    }

    /// The path of a file that an earlier entry made.
    pub(super) fn earlier_file(&self, name: &[u8]) -> Option<PathBuf> {
        let components = self.components(name).ok()?;
        let known = self.known.get(&key(&components))?;
        (*known == EntryKind::File).then(|| joined(&components))
    }

    fn components(&self, name: &[u8]) -> Result<Vec<Vec<u8>>, &'static str> {
        components(name, self.longest, if self.exact { usize::MAX } else { DEEPEST })
    }

    fn link_key(&self, components: &[Vec<u8>]) -> Key {
        if self.exact { key(components) } else { folded_key(components) }
    }
}

/// Cuts a name into components, refusing what does not stay below the target.
fn components(name: &[u8], longest: usize, deepest: usize) -> Result<Vec<Vec<u8>>, &'static str> {
    if name.len() > longest {
        return Err("has a name that is too long");
    }
    if name.contains(&0) {
        return Err("has a NUL byte in its name");
    }
    if name.first() == Some(&b'/') {
        return Err("has an absolute name");
    }
    let mut components = Vec::new();
    for component in name.split(|&byte| byte == b'/') {
        match component {
            b"" | b"." => {}
            b".." => return Err("has `..` in its name"),
            _ if component.len() > LONGEST_COMPONENT => return Err("has a name that is too long"),
            _ => components.push(component.to_vec()),
        }
    }
    match components.len() > deepest {
        true => Err("is too deep"),
        false => Ok(components),
    }
}

/// Checks where a link leads.
pub(super) fn check_target(
    link: &Admitted,
    target: &[u8],
    limits: &ExtractLimits,
) -> Result<(), &'static str> {
    if target.is_empty() || target.len() > limits.path_length || target.contains(&0) {
        return Err("is a link to nowhere");
    }
    if limits.outward_links {
        return Ok(());
    }
    let depth = link.components.len().saturating_sub(1);
    check_link(target, depth).map_err(|astray| match astray {
        Astray::Nowhere => "is a link to nowhere",
        Astray::Absolute => "is a link to an absolute path",
        Astray::Above => "is a link that leaves the archive",
        Astray::Behind => "is a link with `..` behind a name",
    })
}

fn joined(components: &[Vec<u8>]) -> PathBuf {
    components.iter().map(|component| OsString::from_vec(component.clone())).collect()
}

fn key(components: &[Vec<u8>]) -> Key {
    let digest = Sha256::digest(components.join(&b'/'));
    let mut key = Key::default();
    key.copy_from_slice(&digest[..16]);
    key
}

fn folded_key(components: &[Vec<u8>]) -> Key {
    let folded: Vec<Vec<u8>> = components
        .iter()
        .map(|component| String::from_utf8_lossy(component).to_lowercase().into_bytes())
        .collect();
    key(&folded)
}

#[cfg(test)]
mod tests {
    use super::EntryKind::{Directory, File, Link};
    use super::*;

    #[test]
    fn names_stay_below() {
        let long_component = "x".repeat(256);
        let deep = "d/".repeat(200);
        let long = "x/".repeat(600);
        for (name, allowed) in [
            ("a", true),
            ("./a/b", true),
            ("a//b/./c/", true),
            ("..a", true),
            ("a..", true),
            ("...", true),
            ("a\\..\\b", true),
            ("", false),
            ("/", false),
            ("/a", false),
            ("..", false),
            ("../a", false),
            ("a/..", false),
            ("a/../b", false),
            ("./..//a", false),
            ("a\0b", false),
            (long_component.as_str(), false),
            (deep.as_str(), false),
            (long.as_str(), false),
        ] {
            let admitted = Names::new(&ExtractLimits::default()).admit(name.as_bytes(), File);
            assert_eq!(admitted.is_ok(), allowed, "{name:.30} {admitted:?}");
        }
        assert!(
            Names::new(&ExtractLimits::default())
                .admit(b"./", Directory)
                .unwrap()
                .components
                .is_empty()
        );
    }

    #[test]
    fn names_are_plain() {
        let check = |entries: &[(&str, EntryKind)], allowed: bool| {
            let mut names = Names::new(&ExtractLimits::default());
            let (last, first) = entries.split_last().unwrap();
            for (name, kind) in first {
                names.admit(name.as_bytes(), *kind).unwrap();
            }
            let admitted = names.admit(last.0.as_bytes(), last.1);
            assert_eq!(admitted.is_ok(), allowed, "{entries:?} {admitted:?}");
        };
        check(&[("a", Directory), ("a", Directory)], true);
        check(&[("a", Directory), ("a/b", File)], true);
        check(&[("a/b", File), ("a", Directory)], true);
        check(&[("a", File), ("A", File)], true);
        check(&[("a", File), ("a", File)], false);
        check(&[("a", File), ("./a", File)], false);
        check(&[("a", File), ("a", Directory)], false);
        check(&[("a/b", File), ("a", File)], false);
        check(&[("a/b", File), ("a", Link)], false);
        check(&[("a", File), ("a/b", File)], false);
        check(&[("a", Link), ("a/b", File)], false);
        check(&[("a", Link), ("a", File)], false);
        check(&[("a", Link), ("a", Directory)], false);
        check(&[("a", Link), ("A/b", File)], false);
        check(&[("STRASSE", Link), ("strasse/x", File)], false);
        check(&[("É", Link), ("é/x", File)], false);
        check(&[("a", Link), ("A", File)], false);
        check(&[("a", Link), ("ab/c", File)], true);
    }

    #[test]
    fn links_stay_inside() {
        for (name, target, allowed) in [
            ("a", "b", true),
            ("a", "./b/c", true),
            ("x/a", "../b", true),
            ("x/y/a", "../../b", true),
            ("x/a", "..", true),
            ("a", "..", false),
            ("a", "../b", false),
            ("x/a", "../../b", false),
            ("a", "b/../c", false),
            ("x/a", "b/../../../c", false),
            ("a", "/etc/passwd", false),
            ("a", "", false),
            ("a", "b\0c", false),
        ] {
            let admitted =
                Names::new(&ExtractLimits::default()).admit(name.as_bytes(), Link).unwrap();
            let checked = check_target(&admitted, target.as_bytes(), &ExtractLimits::default());
            assert_eq!(checked.is_ok(), allowed, "{name} -> {target}");
        }
    }

    #[test]
    fn what_comes_from_a_sandbox_keeps_its_links_and_names() {
        let limits = ExtractLimits { outward_links: true, ..ExtractLimits::default() };
        let mut names = Names::new(&limits);
        for target in ["/usr/bin/python3", "../../x", "b/../c"] {
            let link = names.admit(target.as_bytes().rsplit(|&b| b == b'/').next().unwrap(), Link);
            assert!(check_target(&link.unwrap(), target.as_bytes(), &limits).is_ok(), "{target}");
        }
        assert!(names.admit(b"X", File).is_ok(), "another name than the link `x`");
        assert!(names.admit("d/".repeat(200).as_bytes(), Directory).is_ok());
        // Never through a link.
        assert!(names.admit(b"python3/y", File).is_err());
        assert!(names.admit(b"python3", File).is_err());
        assert!(names.admit(b"../y", File).is_err());
        assert!(check_target(&names.admit(b"e", Link).unwrap(), b"", &limits).is_err());
    }

    #[test]
    fn only_what_came_before_is_linked_to() {
        let mut names = Names::new(&ExtractLimits::default());
        names.admit(b"d/f", File).unwrap();
        assert_eq!(names.earlier_file(b"./d/f"), Some("d/f".into()));
        for name in ["d", "f", "/d/f", "d/../d/f", "d/F"] {
            assert_eq!(names.earlier_file(name.as_bytes()), None, "{name}");
        }
    }
}
