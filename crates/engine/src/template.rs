//! What a sandbox starts from, decided.

use std::os::fd::OwnedFd;

use belljar_backend::RootSource;
use belljar_policy::template::{CommandText, MANIFESTS, TEMPLATES, detect};
use belljar_policy::{Access, Family, TemplateSpec};
use rustix::fs::{AtFlags, FileType, statat};

use crate::mounts::{OpenDirectory, Protected, open_checked};
use crate::{CreateRequest, Result};

/// A template that can be asked for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TemplateInfo {
    pub name: String,
    pub description: String,
    /// Whether a sandbox can start from it on this host now.
    pub available: bool,
}

pub(crate) fn list() -> Vec<TemplateInfo> {
    let info = |(name, description): &(&str, &str)| TemplateInfo {
        name: (*name).to_owned(),
        description: (*description).to_owned(),
        available: true,
    };
    TEMPLATES.iter().map(info).collect()
}

/// A template that was found, and why it is this one.
#[derive(Debug)]
pub(crate) struct Template {
    pub(crate) name: String,
    pub(crate) family: Option<Family>,
    pub(crate) reason: String,
    pub(crate) root: RootSource,
}

pub(crate) fn resolve(
    request: &CreateRequest,
    workspace: Option<&OpenDirectory>,
    protected: Protected<'_>,
) -> Result<Template> {
    match &request.template {
        TemplateSpec::Auto => {
            let (family, reason) = match &request.family_hint {
                Some(hint) => hint.clone(),
                None => detect(CommandText::None, &manifests(workspace)),
            };
            Ok(Template {
                name: "host".to_owned(),
                family: Some(family),
                reason: format!("{reason}; `host` serves every family"),
                root: RootSource::Host,
            })
        }
        TemplateSpec::Host => Ok(Template {
            name: "host".to_owned(),
            family: None,
            reason: "asked for by name".to_owned(),
            root: RootSource::Host,
        }),
        TemplateSpec::Rootfs(path) => {
            let OpenDirectory { path, descriptor, .. } =
                open_checked(path, Access::ReadOnly, protected)?;
            Ok(Template {
                name: format!("rootfs:{}", path.display()),
                family: None,
                reason: "asked for by name".to_owned(),
                root: RootSource::Directory { path, descriptor },
            })
        }
        TemplateSpec::Image(reference) => Ok(Template {
            name: format!("image:{reference}"),
            family: None,
            reason: "asked for by name".to_owned(),
            root: RootSource::Image { name: reference.clone() },
        }),
    }
}

/// The manifests that lie in the workspace itself. Only names are looked at, and links are not followed.
fn manifests(workspace: Option<&OpenDirectory>) -> Vec<&'static str> {
    let Some(OpenDirectory { descriptor, .. }) = workspace else { return Vec::new() };
    let is_file = |descriptor: &OwnedFd, name: &str| {
        statat(descriptor, name, AtFlags::SYMLINK_NOFOLLOW)
            .is_ok_and(|stat| FileType::from_raw_mode(stat.st_mode).is_file())
    };
    MANIFESTS.iter().map(|(name, _)| *name).filter(|name| is_file(descriptor, name)).collect()
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;
    use crate::mounts::open_directory;

    #[test]
    fn hints_win_over_manifests() {
        let directory = tempfile::tempdir().unwrap();
        std::fs::write(directory.path().join("package.json"), "{}").unwrap();
        let workspace = open_directory(directory.path(), Access::ReadOnly).unwrap();
        let protected = Protected { home: None, state: Path::new("/nonexistent/state") };
        let family = |request: &CreateRequest, workspace: Option<&OpenDirectory>| {
            resolve(request, workspace, protected).unwrap().family
        };
        let plain = CreateRequest::default();
        let hinted = CreateRequest {
            family_hint: Some((Family::Python, "the command".to_owned())),
            ..CreateRequest::default()
        };
        assert_eq!(family(&plain, None), Some(Family::Base));
        assert_eq!(family(&plain, Some(&workspace)), Some(Family::Node));
        assert_eq!(family(&hinted, Some(&workspace)), Some(Family::Python));
    }
}
