//! The agent's program in a container.
//!
//! On an engine of this host it is a file of ours, bound read-only. On any other it is in a volume that is filled once per
//! version, by the engine's own way to put files into a container that does not run, and then mounted read-only.

use std::io::{self, Write};
use std::path::{Path, PathBuf};

use belljar_agent_image::AGENT;
use belljar_backend::Result;
use belljar_machinery::skeleton::{Item, Skeleton};
use bollard::Docker as Client;
use bollard::models::{
    ContainerCreateBody, HostConfig, Mount, MountType, MountVolumeOptions, VolumeCreateRequest,
};
use bollard::query_parameters::{
    ContainerArchiveInfoOptionsBuilder, CreateContainerOptions, RemoveContainerOptionsBuilder,
    UploadToContainerOptionsBuilder,
};
use sha2::{Digest, Sha256};

use crate::failure::{failed, is_missing};
use crate::labels::Installation;

/// Where the program is inside.
pub(crate) const DIRECTORY: &str = "/run/belljar/init";
/// Its name, by which it is the agent.
const NAME: &str = "belljar-agent";
/// The user as whom hosts come, which no workload can be: the agent takes whoever has it for a host.
pub(crate) const HOST: u32 = 0;
/// The user that the agent becomes, with what it needs to start others: no workload can be it either.
pub(crate) const USER: u32 = 65533;
/// What it needs for that: to be others, to end them, and to take from them what they must not have.
pub(crate) const CAPABILITIES: [&str; 4] = ["KILL", "SETGID", "SETPCAP", "SETUID"];

/// A directory that only hosts may pass through; the agent's program knows it.
pub(crate) const DOOR: &str = "/run/belljar/host";

/// How the agent is started. A kernel of a container's own may not say who connects: then hosts come by the door.
pub(crate) fn arguments(own_kernel: bool) -> Vec<String> {
    let arrivals = if own_kernel { "door".to_owned() } else { format!("own={HOST}") };
    vec![arrivals, format!("become={USER}")]
}

/// How a way to it is started.
pub(crate) fn relay(own_kernel: bool) -> Vec<String> {
    let mut words = vec![program(), "relay".to_owned()];
    words.extend(own_kernel.then(|| "door".to_owned()));
    words
}

pub(crate) fn program() -> String {
    format!("{DIRECTORY}/{NAME}")
}

/// The directory on this host that has the program.
pub(crate) fn directory(templates: &Path) -> io::Result<PathBuf> {
    let mut skeleton = Skeleton::default();
    skeleton.add(NAME, Item::File { content: AGENT.to_vec(), mode: 0o755 });
    skeleton.build(templates, "docker-agent", true)
}

/// The volume of an engine elsewhere that has the program.
pub(crate) fn volume() -> Mount {
    mount(true)
}

fn mount(read_only: bool) -> Mount {
    Mount {
        target: Some(DIRECTORY.to_owned()),
        source: Some(volume_name()),
        typ: Some(MountType::VOLUME),
        read_only: Some(read_only),
        volume_options: Some(MountVolumeOptions {
            no_copy: Some(true),
            ..MountVolumeOptions::default()
        }),
        ..Mount::default()
    }
}

fn volume_name() -> String {
    let digest = Sha256::digest(AGENT);
    let short: String = digest.iter().take(8).map(|byte| format!("{byte:02x}")).collect();
    format!("belljar-agent-{short}")
}

/// Makes sure that the volume has the program, by way of a container of `image` that never runs.
pub(crate) async fn fill_volume(
    client: &Client,
    image: &str,
    installation: &Installation,
) -> Result<()> {
    let wrong = |error| failed("the agent cannot be put into a volume of the engine", error);
    let volume =
        VolumeCreateRequest { name: Some(volume_name()), ..VolumeCreateRequest::default() };
    client.create_volume(volume).await.map_err(wrong)?;
    let body = ContainerCreateBody {
        image: Some(image.to_owned()),
        entrypoint: Some(vec![program()]),
        labels: Some(installation.label()),
        host_config: Some(HostConfig {
            mounts: Some(vec![mount(false)]),
            network_mode: Some("none".to_owned()),
            ..HostConfig::default()
        }),
        ..ContainerCreateBody::default()
    };
    let created =
        client.create_container(None::<CreateContainerOptions>, body).await.map_err(wrong)?;
    let filled = fill(client, &created.id).await;
    let options = RemoveContainerOptionsBuilder::new().force(true).build();
    let removed = client.remove_container(&created.id, Some(options)).await;
    filled.map_err(wrong)?;
    removed.map_err(wrong)
}

async fn fill(client: &Client, container: &str) -> Result<(), bollard::errors::Error> {
    let options = ContainerArchiveInfoOptionsBuilder::new().path(&program()).build();
    match client.get_container_archive_info(container, Some(options)).await {
        Ok(info) if info.size == AGENT.len() as i64 => return Ok(()),
        Ok(_) => {}
        Err(error) if is_missing(&error) => {}
        Err(error) => return Err(error),
    }
    let options = UploadToContainerOptionsBuilder::new().path(DIRECTORY).build();
    let body = bollard::body_full(archive()?.into());
    client.upload_to_container(container, Some(options), body).await
}

fn archive() -> io::Result<Vec<u8>> {
    let mut builder = tar::Builder::new(Vec::new());
    let mut header = tar::Header::new_gnu();
    header.set_size(AGENT.len() as u64);
    header.set_mode(0o755);
    builder.append_data(&mut header, NAME, AGENT)?;
    let mut bytes = builder.into_inner()?;
    bytes.flush()?;
    Ok(bytes)
}
