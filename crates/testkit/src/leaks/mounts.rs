//! Mounts in the host's own mount namespace.

use std::fs;

use super::Scope;

pub(super) fn list(scope: &Scope) -> Vec<String> {
    parse(&fs::read_to_string("/proc/self/mountinfo").unwrap_or_default(), scope)
}

fn parse(mountinfo: &str, scope: &Scope) -> Vec<String> {
    let lines = mountinfo.lines().filter(|line| scope.holds(line));
    // The numbers in front change with every mount; the place and the kind do not.
    lines.map(|line| line.split(' ').skip(3).collect::<Vec<_>>().join(" ")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mounts_are_named_without_their_numbers() {
        let text = "22 1 8:1 / / rw - ext4 /dev/vda rw\n\
                    90 22 0:44 / /tmp/belljar/root rw shared:5 - overlay overlay rw\n";
        let expected = ["/ /tmp/belljar/root rw shared:5 - overlay overlay rw"];
        assert_eq!(parse(text, &Scope::Machine), expected);
    }
}
