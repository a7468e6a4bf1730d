//! `belljar logs`: what a process wrote, from any byte that is still kept.

use belljar_api::v1;

use super::drive::{Screen, unwritable};
use super::{Done, enumeration};
use crate::args::LogsArgs;
use crate::context::Context;
use crate::failure::Failure;
use crate::output::{is_closed, note, print_json_line};

pub(crate) async fn logs(context: &Context, args: &LogsArgs) -> Result<Done, Failure> {
    let request = v1::FollowLogRequest {
        process_id: args.process.clone(),
        since: Some(v1::Offsets { stdout: args.since, stderr: args.since }),
        channels: enumeration::<v1::Channel>(args.stream.as_slice())?,
        follow: args.follow,
    };
    context
        .with_client(async |mut client| {
            let mut pieces = client.processes.follow_log(request).await?.into_inner();
            let mut screen = Screen::new(false);
            let mut gaps = Gaps::new(args.since);
            while let Some(piece) = pieces.message().await? {
                if args.json {
                    print_json_line(&piece)?;
                    continue;
                }
                if let Some(missing) = gaps.before(&piece) {
                    note(context.quiet, &format!("{missing} bytes are no longer kept"));
                }
                match screen.write(piece).await {
                    Ok(()) => {}
                    // Nobody reads any more; the process goes on.
                    Err(error) if is_closed(&error) => return Ok(Done::Success),
                    Err(error) => return Err(unwritable(&error)),
                }
            }
            screen.finish().await?;
            Ok(Done::Success)
        })
        .await
        .map_err(|failure| failure.watching(&args.process))
}

/// Where each stream goes on, so that what is missing can be told.
struct Gaps {
    next: [u64; 2],
}

impl Gaps {
    fn new(since: u64) -> Self {
        Self { next: [since; 2] }
    }

    /// How many bytes of its stream are missing before `piece`.
    fn before(&mut self, piece: &v1::ProcessOutput) -> Option<u64> {
        if piece.data.is_empty() {
            return None;
        }
        let next = match piece.channel() {
            v1::Channel::Stderr => &mut self.next[1],
            v1::Channel::Stdout | v1::Channel::Unspecified => &mut self.next[0],
        };
        let missing = piece.offset.saturating_sub(*next);
        *next = piece.offset + piece.data.len() as u64;
        (missing > 0).then_some(missing)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn missing_bytes_are_counted_for_each_stream() {
        let piece = |channel: v1::Channel, offset: u64| v1::ProcessOutput {
            channel: channel.into(),
            offset,
            data: vec![0; 10].into(),
            ..v1::ProcessOutput::default()
        };
        let mut gaps = Gaps::new(0);
        assert_eq!(gaps.before(&piece(v1::Channel::Stdout, 0)), None);
        assert_eq!(gaps.before(&piece(v1::Channel::Stdout, 10)), None);
        assert_eq!(gaps.before(&piece(v1::Channel::Stderr, 5)), Some(5));
        assert_eq!(gaps.before(&piece(v1::Channel::Stdout, 120)), Some(100));
    }
}
