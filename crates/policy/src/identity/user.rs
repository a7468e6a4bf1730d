//! Who a command runs as, inside the sandbox.

use std::fmt;

use belljar_codes::Code;

use crate::Invalid;
use crate::invalid::shown;

pub const ROOT_ID: u32 = 0;
/// `user`, who owns `/home/user` and runs commands unless another is asked for.
pub const USER_ID: u32 = 1000;
/// The agent. No command ever runs as this user, so none can signal or trace the agent.
pub const AGENT_ID: u32 = 65_533;
/// The highest id there is in a sandbox.
pub const NOBODY_ID: u32 = 65_534;

const KNOWN: &[(&str, u32)] = &[("root", ROOT_ID), ("user", USER_ID), ("nobody", NOBODY_ID)];

const REMEDY: &str =
    "use `root`, `user`, `nobody`, a number such as `1000`, or `UID:GID`; 65533 is reserved";

/// A user inside a sandbox.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum UserSpec {
    /// Nobody asked: `user` (or, where only one id exists, that one).
    #[default]
    Default,
    /// Root inside the user namespace only.
    Root,
    Ids {
        uid: u32,
        gid: u32,
    },
}

impl UserSpec {
    /// # Errors
    /// Where `text` is neither a known name nor ids that exist in a sandbox.
    pub fn parse(text: &str) -> Result<Self, Invalid> {
        if text == "default" {
            return Ok(Self::Default);
        }
        let (user, group) = match text.split_once(':') {
            Some((user, group)) => (user, Some(group)),
            None => (text, None),
        };
        let uid = id(user).map_err(|reason| refuse(text, reason))?;
        let gid = group.map_or(Ok(uid), id).map_err(|reason| refuse(text, reason))?;
        Ok(if uid == ROOT_ID && gid == ROOT_ID { Self::Root } else { Self::Ids { uid, gid } })
    }

    #[must_use]
    pub const fn uid(self) -> u32 {
        match self {
            Self::Default => USER_ID,
            Self::Root => ROOT_ID,
            Self::Ids { uid, .. } => uid,
        }
    }

    #[must_use]
    pub const fn gid(self) -> u32 {
        match self {
            Self::Default => USER_ID,
            Self::Root => ROOT_ID,
            Self::Ids { gid, .. } => gid,
        }
    }

    /// The name that `/etc/passwd` of a sandbox has for this user.
    #[must_use]
    pub fn name(self) -> Option<&'static str> {
        KNOWN.iter().find(|(_, uid)| *uid == self.uid()).map(|(name, _)| *name)
    }

    /// Whether somebody chose this user.
    #[must_use]
    pub const fn is_asked(self) -> bool {
        !matches!(self, Self::Default)
    }
}

impl fmt::Display for UserSpec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Default => f.pad("default"),
            Self::Root => f.pad("root"),
            Self::Ids { uid, gid } => f.pad(&format!("{uid}:{gid}")),
        }
    }
}

as_checked_text!(UserSpec);

fn refuse(text: &str, reason: &str) -> Invalid {
    Invalid::new(Code::UserInvalid, format!("user `{}` {reason}", shown(text)), REMEDY)
}

fn id(text: &str) -> Result<u32, &'static str> {
    if let Some((_, id)) = KNOWN.iter().find(|(name, _)| *name == text) {
        return Ok(*id);
    }
    if text.is_empty() || !text.bytes().all(|b| b.is_ascii_digit()) {
        return Err("is not known");
    }
    match text.parse() {
        Ok(AGENT_ID) => Err("is the agent's own"),
        Ok(id) if id <= NOBODY_ID => Ok(id),
        _ => Err("is beyond the ids of a sandbox"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn users_have_ids() {
        let check = |text: &str, uid: u32, gid: u32, name: Option<&str>| {
            let user = UserSpec::parse(text).unwrap();
            assert_eq!((user.uid(), user.gid(), user.name()), (uid, gid, name), "{text}");
        };
        check("root", 0, 0, Some("root"));
        check("0", 0, 0, Some("root"));
        check("0:0", 0, 0, Some("root"));
        check("user", 1000, 1000, Some("user"));
        check("default", 1000, 1000, Some("user"));
        check("1000", 1000, 1000, Some("user"));
        check("1000:100", 1000, 100, Some("user"));
        check("root:user", 0, 1000, Some("root"));
        check("nobody", 65534, 65534, Some("nobody"));
        check("42:42", 42, 42, None);
        check("65532", 65532, 65532, None);
    }

    #[test]
    fn other_users_are_refused() {
        let check = |text: &str, expected: &str| {
            let refused = UserSpec::parse(text).unwrap_err();
            assert_eq!((refused.code, refused.message.as_str()), (Code::UserInvalid, expected));
        };
        check("", "user `` is not known");
        check("alice", "user `alice` is not known");
        check("-1", "user `-1` is not known");
        check("+5", "user `+5` is not known");
        check("1000:", "user `1000:` is not known");
        check(":1000", "user `:1000` is not known");
        check("1:2:3", "user `1:2:3` is not known");
        check("65533", "user `65533` is the agent's own");
        check("0:65533", "user `0:65533` is the agent's own");
        check("65535", "user `65535` is beyond the ids of a sandbox");
        check("4294967296", "user `4294967296` is beyond the ids of a sandbox");
        check("a\nb", "user `a\\nb` is not known");
    }

    proptest! {
        #[test]
        fn what_is_shown_parses_to_the_same(text in "[0-9:a-z]{0,12}") {
            if let Ok(user) = UserSpec::parse(&text) {
                prop_assert_eq!(UserSpec::parse(&user.to_string()).unwrap(), user);
                prop_assert!(user.uid() != AGENT_ID && user.gid() != AGENT_ID);
            }
        }
    }
}
