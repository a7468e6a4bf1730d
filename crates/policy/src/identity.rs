//! Names and numbers that tell sandboxes, processes and users apart.
//!
//! Ids are made by Belljar and unguessable; names are chosen by people; users are numbers inside a sandbox's own user
//! namespace and mean nothing on the host.

/// Serialises a type as its text and reads it back through its parser, so that stored text is checked like typed text.
macro_rules! as_checked_text {
    ($type:ty) => {
        impl std::str::FromStr for $type {
            type Err = crate::Invalid;
            fn from_str(text: &str) -> Result<Self, Self::Err> {
                Self::parse(text)
            }
        }

        impl serde::Serialize for $type {
            fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                serializer.collect_str(self)
            }
        }

        impl<'de> serde::Deserialize<'de> for $type {
            fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                let text = <String as serde::Deserialize>::deserialize(deserializer)?;
                Self::parse(&text).map_err(serde::de::Error::custom)
            }
        }
    };
}
pub(crate) use as_checked_text;

mod id;
mod name;
mod tenant;
mod user;

pub use id::{NODE_ID_LENGTH, ProcessId, SandboxId, random_text};
pub use name::SandboxName;
pub use tenant::TenantId;
pub use user::{AGENT_ID, NOBODY_ID, ROOT_ID, USER_ID, UserSpec};
