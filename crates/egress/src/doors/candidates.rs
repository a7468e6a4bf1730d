//! The names that an address was given for, and what the rules say about each.

use crate::Reason;
use crate::flow::Preview;

/// At least one.
pub(super) struct Candidates(Vec<(String, Preview)>);

impl Candidates {
    pub(super) fn new(names: &[String], preview: impl Fn(&str) -> Preview) -> Self {
        Self(names.iter().map(|name| (name.clone(), preview(name))).collect())
    }

    /// Why none of them will do; none where one might.
    pub(super) fn refusal(&self) -> Option<Reason> {
        let open = self.0.iter().any(|(_, preview)| !matches!(preview, Preview::Deny(_)));
        (!open).then(|| self.reason())
    }

    /// Whether only a request could be allowed, so that the client must speak first.
    pub(super) fn must_speak(&self) -> bool {
        let silent = |preview: &Preview| {
            !matches!(preview, Preview::Deny(_) | Preview::Inspect { required: true })
        };
        !self.0.iter().any(|(_, preview)| silent(preview))
    }

    /// A name whose requests must be seen; for a client that speaks HTTP, or that should be.
    pub(super) fn inspected(&self, http: bool) -> Option<String> {
        let inspected = |preview: &Preview| match preview {
            Preview::Inspect { required } => *required || http,
            _ => false,
        };
        self.0.iter().find(|(_, preview)| inspected(preview)).map(|(name, _)| name.clone())
    }

    /// The name under which a flow can go on without being looked into.
    ///
    /// # Errors
    /// With the reason, where there is none.
    pub(super) fn best(&self) -> Result<String, Reason> {
        let rank = |preview: &Preview| match preview {
            Preview::Allow => Some(0),
            Preview::Inspect { required: false } => Some(1),
            Preview::Ask => Some(2),
            Preview::Inspect { required: true } | Preview::Deny(_) => None,
        };
        let ranked = self.0.iter().filter_map(|(name, preview)| Some((rank(preview)?, name)));
        let best = ranked.min_by_key(|(rank, _)| *rank);
        best.map(|(_, name)| name.clone()).ok_or_else(|| self.reason())
    }

    /// The same, where the client claims a name: among names that are as good as each other, that one.
    pub(super) fn best_of(&self, claimed: Option<&str>) -> Result<String, Reason> {
        let best = self.best()?;
        let found = |name: &str| self.0.iter().find(|(known, _)| known == name);
        let equal = claimed.and_then(|claimed| {
            let ((name, claimed), (_, best)) = (found(claimed)?, found(&best)?);
            (claimed == best).then(|| name.clone())
        });
        Ok(equal.unwrap_or(best))
    }

    /// Those that are not denied.
    pub(super) fn open(self) -> Vec<String> {
        let open = |preview: &Preview| !matches!(preview, Preview::Deny(_));
        self.0.into_iter().filter(|(_, preview)| open(preview)).map(|(name, _)| name).collect()
    }

    fn reason(&self) -> Reason {
        let denied = self.0.iter().find_map(|(_, preview)| match preview {
            Preview::Deny(reason) => Some(*reason),
            _ => None,
        });
        denied.unwrap_or(Reason::Unsupported)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn candidates(previews: &[Preview]) -> Candidates {
        let named = previews.iter().enumerate().map(|(n, preview)| (n.to_string(), *preview));
        Candidates(named.collect())
    }

    #[test]
    fn the_strictest_decides_what_is_seen_and_the_mildest_what_passes() {
        use Preview::{Allow, Ask, Deny, Inspect};
        let denied = Deny(Reason::RuleDenies);
        let must = Inspect { required: true };
        let may = Inspect { required: false };
        assert_eq!(candidates(&[denied]).refusal(), Some(Reason::RuleDenies));
        assert_eq!(candidates(&[denied, Ask]).refusal(), None);
        assert!(candidates(&[denied, must]).must_speak());
        assert!(!candidates(&[must, may]).must_speak());
        assert_eq!(candidates(&[Allow, must]).inspected(false).as_deref(), Some("1"));
        assert_eq!(candidates(&[Allow, may]).inspected(false), None);
        assert_eq!(candidates(&[Allow, may]).inspected(true).as_deref(), Some("1"));
        assert_eq!(candidates(&[Ask, must, Allow, denied]).best().as_deref(), Ok("2"));
        assert_eq!(
            candidates(&[Ask, Ask, Deny(Reason::RuleDenies)]).best_of(Some("1")).as_deref(),
            Ok("1")
        );
        for claimed in [None, Some("2"), Some("other")] {
            assert_eq!(candidates(&[Ask, Ask, denied]).best_of(claimed).as_deref(), Ok("0"));
        }
        assert_eq!(candidates(&[must, denied]).best(), Err(Reason::RuleDenies));
        assert_eq!(candidates(&[must, denied, Allow]).open(), ["0", "2"]);
    }
}
