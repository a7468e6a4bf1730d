//! Which links may be in an archive, and how deep one may be.

/// Directories in each other.
pub const DEEPEST: usize = 128;

/// Why a link is not taken along.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Astray {
    /// It names nothing, or nothing that a kernel takes.
    Nowhere,
    Absolute,
    /// It leads up further than the tree goes.
    Above,
    /// It leads up behind a name, which could be another link.
    Behind,
}

/// Checks where a link leads whose directory is so deep in the tree: up at most to the tree's root, then only down. Each
/// link on its way does the same, so none leads outside.
///
/// # Errors
/// Where it leads out, or might with the help of others.
pub fn check_link(target: &[u8], depth: usize) -> Result<(), Astray> {
    match target.first() {
        None => return Err(Astray::Nowhere),
        Some(b'/') => return Err(Astray::Absolute),
        Some(_) if target.contains(&0) => return Err(Astray::Nowhere),
        Some(_) => {}
    }
    let mut above = depth;
    let mut down = false;
    for step in target.split(|&byte| byte == b'/') {
        match step {
            b"" | b"." => {}
            b".." if down => return Err(Astray::Behind),
            b".." => above = above.checked_sub(1).ok_or(Astray::Above)?,
            _ => down = true,
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn links_lead_up_to_the_root_and_then_down() {
        for (depth, target, expected) in [
            (0, "b", Ok(())),
            (0, "./b//c/", Ok(())),
            (0, "..b/...", Ok(())),
            (1, "..", Ok(())),
            (2, "../../b", Ok(())),
            (2, ".././../b", Ok(())),
            (0, "", Err(Astray::Nowhere)),
            (9, "b\0c", Err(Astray::Nowhere)),
            (9, "/b", Err(Astray::Absolute)),
            (0, "..", Err(Astray::Above)),
            (0, "./../b", Err(Astray::Above)),
            (1, "../../b", Err(Astray::Above)),
            (9, "b/..", Err(Astray::Behind)),
            (9, "../b/./../c", Err(Astray::Behind)),
        ] {
            assert_eq!(check_link(target.as_bytes(), depth), expected, "{target} at {depth}");
        }
    }
}
