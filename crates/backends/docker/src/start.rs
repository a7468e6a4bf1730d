//! The start of a sandbox: a container made, its agent brought to listen.

use belljar_backend::{Error, IsolationClass, Result, SandboxSpec, Stream};
use belljar_codes::Code;
use bollard::query_parameters::{CreateContainerOptionsBuilder, StartContainerOptions};

use crate::backend::Docker;
use crate::container::{self, Asked};
use crate::daemon::class;
use crate::failure::{failed, is_conflict};
use crate::limits::{self, Chosen};
use crate::root::{Root, unreadable};
use crate::usage::Known;
use crate::{agent, binds, memory, network, podman, relay};

/// A container that was made and what it is to show.
pub(crate) struct Made {
    container: String,
    pub(crate) class: IsolationClass,
    binds: Vec<binds::Bind>,
    directories: Vec<memory::Directory>,
}

impl Docker {
    pub(crate) async fn plan_with(&self, spec: &SandboxSpec) -> Result<(Root<'_>, Chosen)> {
        let facts = &self.daemon().await?.facts;
        self.runtime(spec).await?;
        limits::choose(spec, facts, &[])?; // what is refused is so before any image is made
        let root = self.root(spec).await?;
        let chosen = limits::choose(spec, facts, &root.image.volumes)?;
        Ok((root, chosen))
    }

    pub(crate) async fn create(
        &self,
        spec: &SandboxSpec,
        root: &Root<'_>,
        chosen: &Chosen,
    ) -> Result<Made> {
        let daemon = self.daemon().await?;
        let facts = &daemon.facts;
        let installation = self.installation().await?;
        let templates = self.machine.templates();
        let (mounts, binds) = if facts.near {
            let podman = facts.podman;
            let binds = binds::of(spec, root.host, &root.search_path, &templates, podman)?;
            (binds.iter().map(binds::Bind::to_mount).collect::<Result<_>>()?, binds)
        } else {
            agent::fill_volume(&daemon.client, &root.image.id, installation).await?;
            (vec![agent::volume()], Vec::new())
        };
        let runtime = self.runtime(spec).await?;
        let class = class(runtime.as_deref());
        let directories = memory::of(spec, chosen, class != IsolationClass::Namespace);
        let security = match facts.podman {
            true => podman::security(&templates).map_err(unreadable)?,
            false => container::security(facts),
        };
        let asked = Asked {
            image: &root.image.id,
            runtime: runtime.as_deref(),
            labels: installation.labels(&spec.id),
            mounts,
            directories: &directories,
            security,
        };
        let body = container::body(spec, chosen, facts, asked);
        let name = installation.container(&spec.id);
        let options = CreateContainerOptionsBuilder::new().name(&name).build();
        let created = daemon.client.create_container(Some(options), body).await;
        let created = created.map_err(|error| match is_conflict(&error) {
            true => Error::new(Code::SandboxExists, format!("sandbox `{}` exists", spec.id))
                .with_source(error),
            false => failed("the engine does not make the container", error),
        })?;
        Ok(Made { container: created.id, class, binds, directories })
    }

    /// From a container that was made to an agent that listens.
    pub(crate) async fn bring_up(&self, spec: &SandboxSpec, made: &Made) -> Result<Stream> {
        let daemon = self.daemon().await?;
        daemon
            .client
            .start_container(&made.container, None::<StartContainerOptions>)
            .await
            .map_err(|error| failed("the engine does not start the container", error))?;
        if daemon.facts.near {
            let ended = || Error::new(Code::StartFailed, "the container ended as soon as it began");
            let (container, pid) = self.running(&spec.id).await?.ok_or_else(ended)?;
            if made.class == IsolationClass::Namespace {
                let root = network::root(&container, pid)?;
                binds::verify(&root, &made.binds)?;
                if daemon.facts.podman {
                    podman::complete(&root, &made.directories)?;
                }
            } else {
                binds::verify_names(&made.binds)?;
            }
            if let Some(known) = Known::of(&container, pid) {
                self.lock_known().insert(spec.id.clone(), known);
            }
            if made.class == IsolationClass::Namespace {
                return self.reach(&container, pid).await;
            }
        }
        let own_kernel = made.class != IsolationClass::Namespace;
        relay::connect(&daemon.client, &made.container, own_kernel).await
    }
}
