//! What a start request is put together from: the root, what is bound into it, and the directories that were asked for.

use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;
use std::sync::Arc;

use belljar_backend::{Error, Mask, Result, RootSource, SandboxSpec};
use belljar_codes::Code;
use belljar_launcher::wire::{self, Facts, MountKind, Tree};
use belljar_policy::{Access, NetworkMode};

use crate::host_path::HostPath;
use crate::machine::Machine;
use crate::wall::Wall;
use crate::{init, masks, programs, rootfs, tools};

/// What a start request is put together from.
#[derive(Default)]
pub(crate) struct Request {
    pub(crate) descriptors: Vec<Arc<OwnedFd>>,
    pub(crate) root: Vec<Tree>,
    pub(crate) binds: Vec<wire::Bind>,
}

impl Request {
    pub(crate) fn tree(&mut self, source: &HostPath) -> Tree {
        self.descriptors.push(Arc::clone(&source.descriptor));
        Tree { descriptor: self.descriptors.len() - 1, path: source.real.clone() }
    }

    fn bind(&mut self, source: &HostPath, target: &str, layered: bool) {
        let source = self.tree(source);
        self.binds.push(wire::Bind { source, target: target.as_bytes().to_vec(), layered });
    }
}

impl Machine {
    /// Puts the root into the request and returns where programs are searched.
    pub(crate) async fn root(
        &self,
        spec: &SandboxSpec,
        facts: &Facts,
        wall: &Wall,
        request: &mut Request,
    ) -> Result<Vec<String>> {
        let state_failed = |error: io::Error| {
            Error::new(Code::StateFailed, "a template directory cannot be made").with_source(error)
        };
        let network = spec.network != NetworkMode::None;
        let (base, search_path) = match &spec.root {
            RootSource::Host => {
                let host = self.host_root(facts.privileged, network).await?;
                let skeleton = request.tree(&host.skeleton);
                request.root.push(skeleton);
                for (source, target) in &host.binds {
                    request.bind(source, target, target == "usr");
                }
                (PathBuf::from("/"), host.search_path.clone())
            }
            RootSource::Directory { path, descriptor } => {
                let points = rootfs::mount_points(&self.templates(), facts.privileged, network)
                    .map_err(state_failed)?;
                let points = request.tree(&HostPath::open(&points).map_err(state_failed)?);
                let copy = descriptor.try_clone().map_err(state_failed)?;
                let directory = request.tree(&HostPath::of(copy, path));
                request.root.extend([points, directory]);
                (path.clone(), rootfs::SEARCH_PATH.iter().map(|&path| path.to_owned()).collect())
            }
            RootSource::Image { name } => return Err(Error::no_images(wall.name(), name)),
        };
        for cover in &spec.covers {
            let copy = cover.source.descriptor.try_clone().map_err(state_failed)?;
            let target = cover.target.strip_prefix("/").unwrap_or(&cover.target);
            let target = target.to_str().unwrap_or_default();
            request.bind(&HostPath::of(copy, &cover.source.path), target, false);
        }
        if let Some(programs) = &spec.programs {
            let stub = belljar_agent_image::AGENT;
            let covers = programs::covers(
                &base,
                &search_path,
                programs,
                &self.templates(),
                stub,
                facts.privileged,
            )
            .map_err(|error| match error.kind() {
                io::ErrorKind::NotFound => Error::new(
                    Code::ProgramNotFound,
                    format!("program `{error}` of `--programs` is not in the template"),
                )
                .with_remedy("name programs as they are found in the template's PATH"),
                _ => state_failed(error),
            })?;
            for cover in covers {
                request.bind(
                    &HostPath::open(&cover.directory).map_err(state_failed)?,
                    &cover.target,
                    false,
                );
                for (program, target) in cover.programs {
                    request.bind(&HostPath::open(&program).map_err(state_failed)?, &target, false);
                }
            }
        }
        if spec.tools {
            let program = belljar_agent_image::AGENT;
            let directory = tools::directory(&self.templates(), program, facts.privileged)
                .map_err(state_failed)?;
            let directory = HostPath::open(&directory).map_err(state_failed)?;
            request.bind(&directory, tools::TARGET, false);
        }
        if wall.runtime().is_some() {
            let program = belljar_agent_image::AGENT;
            let directory = init::directory(&self.templates(), program, facts.privileged)
                .map_err(state_failed)?;
            request.bind(&HostPath::open(&directory).map_err(state_failed)?, init::TARGET, false);
        }
        Ok(search_path)
    }

    /// Puts something empty over each mask.
    pub(crate) fn masks(
        &self,
        masks: &[Mask],
        facts: &Facts,
        request: &mut Request,
    ) -> Result<Vec<wire::Bind>> {
        let state_failed = |error: io::Error| {
            Error::new(Code::StateFailed, "a template directory cannot be made").with_source(error)
        };
        let bind = |mask: &Mask| {
            let source = masks::source(&self.templates(), mask.kind, facts.privileged)?;
            let source = request.tree(&HostPath::open(&source)?);
            let target = mask.target.strip_prefix("/").unwrap_or(&mask.target);
            Ok(wire::Bind {
                source,
                target: target.as_os_str().as_bytes().to_vec(),
                layered: false,
            })
        };
        masks.iter().map(bind).collect::<io::Result<_>>().map_err(state_failed)
    }
}

pub(crate) fn mounts(
    mounts: Vec<belljar_backend::ResolvedMount>,
    request: &mut Request,
) -> Vec<wire::Mount> {
    mounts
        .into_iter()
        .map(|mount| wire::Mount {
            kind: match (mount.overlay, mount.access) {
                (true, _) => MountKind::Layer,
                (false, Access::ReadOnly) => MountKind::ReadOnly,
                (false, Access::ReadWrite) => MountKind::ReadWrite,
            },
            target: mount
                .target
                .strip_prefix("/")
                .unwrap_or(&mount.target)
                .as_os_str()
                .as_bytes()
                .to_vec(),
            source: request.tree(&HostPath::of(mount.source.descriptor, &mount.source.path)),
        })
        .collect()
}
