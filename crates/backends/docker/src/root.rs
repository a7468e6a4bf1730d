//! What a sandbox starts from, found on the engine or brought to it.

use std::collections::BTreeMap;

use belljar_backend::{Error, Result, RootSource, SandboxSpec};
use belljar_codes::Code;
use belljar_machinery::host::HostRoot;
use belljar_machinery::host_path::HostPath;
use belljar_machinery::rootfs;
use belljar_policy::NetworkMode;

use crate::backend::Docker;
use crate::daemon::Daemon;
use crate::failure::refused;
use crate::images::{self, Image};
use crate::labels::HARDENED;
use crate::programs;

/// What a sandbox starts from, found.
pub(crate) struct Root<'a> {
    pub(crate) image: Image,
    pub(crate) host: Option<&'a HostRoot>,
    pub(crate) search_path: Vec<String>,
    pub(crate) environment: BTreeMap<String, String>,
}

impl Docker {
    pub(crate) async fn root(&self, spec: &SandboxSpec) -> Result<Root<'_>> {
        let daemon = self.daemon().await?;
        let root = self.whole_root(spec, daemon).await?;
        let (Some(listed), None) = (&spec.programs, root.host) else { return Ok(root) };
        let installation = self.installation().await?;
        let _one_at_a_time = self.limiting.lock().await;
        let image =
            programs::limited(&daemon.client, &root.image, &root.search_path, listed, installation);
        Ok(Root { image: image.await?, ..root })
    }

    /// The same with all of its programs.
    async fn whole_root(&self, spec: &SandboxSpec, daemon: &Daemon) -> Result<Root<'_>> {
        let usual = || rootfs::SEARCH_PATH.iter().map(|&path| path.to_owned()).collect();
        match &spec.root {
            RootSource::Host => {
                let (host, image) = self.host(spec.network != NetworkMode::None).await?;
                let search_path = host.search_path.clone();
                let environment = path_variable(&search_path);
                Ok(Root { image: image.clone(), host: Some(host), search_path, environment })
            }
            RootSource::Directory { path, descriptor } => {
                let copy = descriptor.try_clone().map_err(unreadable)?;
                let source = HostPath::of(copy, path);
                let directory = source.by_descriptor();
                let digest = tokio::task::spawn_blocking({
                    let directory = directory.clone();
                    move || images::digest(&directory)
                });
                let digest = digest.await.map_err(|error| unreadable(error.into()))?;
                let digest = digest.map_err(unreadable)?;
                let image = images::import(&daemon.client, "rootfs", &digest, directory).await?;
                let search_path: Vec<String> = usual();
                let environment = path_variable(&search_path);
                Ok(Root { image, host: None, search_path, environment })
            }
            RootSource::Image { name } => {
                let image = images::find(&daemon.client, name, self.options.pull, None).await?;
                self.check_hardened(name, &image, spec)?;
                let mut environment = image.environment.clone();
                let search_path: Vec<String> = match environment.get("PATH") {
                    Some(path) => path.split(':').map(str::to_owned).collect(),
                    None => usual(),
                };
                environment.extend(path_variable(&search_path));
                Ok(Root { image, host: None, search_path, environment })
            }
        }
    }

    /// This host as a root: an image of what is ours in it, over which its programs are bound.
    async fn host(&self, network: bool) -> Result<&(HostRoot, Image)> {
        let daemon = self.daemon().await?;
        if !daemon.facts.near {
            return Err(refused(
                "template host",
                "the engine is not on this host, or we may not look at its containers",
                "use `--template image:NAME`, or `rootfs:DIR`, which is sent to the engine",
            ));
        }
        let make = || async {
            let host =
                HostRoot::build(&self.machine.templates(), true, network).map_err(|error| {
                    Error::new(Code::StateFailed, "the host template cannot be put together")
                        .with_source(error)
                })?;
            let skeleton = host.skeleton.by_descriptor();
            let digest = images::digest(&skeleton).map_err(unreadable)?;
            let image = images::import(&daemon.client, "host", &digest, skeleton).await?;
            Ok((host, image))
        };
        self.hosts[usize::from(network)].get_or_try_init(make).await
    }

    fn check_hardened(&self, name: &str, image: &Image, spec: &SandboxSpec) -> Result<()> {
        let says = image.labels.get(HARDENED).is_some_and(|value| value == "true");
        if says || spec.programs.is_some() || !self.options.require_hardened_image {
            return Ok(());
        }
        Err(refused(
            "template",
            &format!("image `{name}` does not say that it is hardened, which is required here"),
            &format!("use an image with the label `{HARDENED}=true`"),
        ))
    }
}

fn path_variable(search_path: &[String]) -> BTreeMap<String, String> {
    BTreeMap::from([("PATH".to_owned(), search_path.join(":"))])
}

pub(crate) fn unreadable(error: std::io::Error) -> Error {
    Error::new(Code::StateFailed, "the template cannot be read").with_source(error)
}
