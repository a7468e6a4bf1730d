//! The bytes of a tar archive on their way in, decompressed where needed, a few at a time.

use std::io::Write;

use flate2::write::MultiGzDecoder;
use tokio::io::{AsyncRead, AsyncReadExt};

use super::limits::{ExtractLimits, check_ratio, exceeded};
use super::{failed_to_read, refused_archive};
use crate::Result;

const READ_SIZE: usize = 32 << 10;

pub(super) struct Source<R> {
    reader: R,
    /// Gives up to a few times its 32 KiB buffer for each step.
    gunzip: Option<MultiGzDecoder<Vec<u8>>>,
    limits: ExtractLimits,
    /// What was read and not decompressed yet.
    packed: Vec<u8>,
    packed_taken: usize,
    /// What can be given out.
    ready: Vec<u8>,
    ready_taken: usize,
    received: u64,
    produced: u64,
    ended: bool,
}

impl<R: AsyncRead + Unpin> Source<R> {
    pub(super) fn plain(reader: R, limits: ExtractLimits) -> Self {
        Self {
            reader,
            gunzip: None,
            limits,
            packed: Vec::new(),
            packed_taken: 0,
            ready: Vec::new(),
            ready_taken: 0,
            received: 0,
            produced: 0,
            ended: false,
        }
    }

    pub(super) fn compressed(reader: R, limits: ExtractLimits) -> Self {
        let gunzip = Some(MultiGzDecoder::new(Vec::new()));
        Self { gunzip, ..Self::plain(reader, limits) }
    }

    /// Up to `most` bytes; empty only at the end.
    pub(super) async fn read(&mut self, most: u64) -> Result<&[u8]> {
        while self.ready_taken == self.ready.len() && !self.ended {
            self.fill().await?;
        }
        let rest = self.ready.len() - self.ready_taken;
        let size = usize::try_from(most).unwrap_or(rest).min(rest);
        let from = self.ready_taken;
        self.ready_taken += size;
        Ok(self.ready.get(from..from + size).unwrap_or_default())
    }

    /// Exactly so many bytes, or none at all at the end.
    pub(super) async fn read_whole(&mut self, buffer: &mut [u8]) -> Result<bool> {
        let mut filled = 0;
        while filled < buffer.len() {
            let piece = self.read((buffer.len() - filled) as u64).await?;
            match (piece.len(), filled) {
                (0, 0) => return Ok(false),
                (0, _) => return Err(refused_archive("ends in the middle")),
                (size, _) => {
                    buffer[filled..filled + size].copy_from_slice(piece);
                    filled += size;
                }
            }
        }
        Ok(true)
    }

    async fn fill(&mut self) -> Result<()> {
        if self.packed_taken < self.packed.len() {
            return self.unpack();
        }
        let mut buffer = std::mem::take(&mut self.packed);
        buffer.resize(READ_SIZE, 0);
        let size = self.reader.read(&mut buffer).await.map_err(failed_to_read)?;
        buffer.truncate(size);
        self.received += size as u64;
        if self.received > self.limits.archive_bytes {
            let most = self.limits.archive_bytes;
            return Err(exceeded(&format!("more than {most} bytes itself")));
        }
        self.packed = buffer;
        self.packed_taken = 0;
        match size {
            0 => self.end(),
            _ => self.unpack(),
        }
    }

    /// Takes one step with what was read.
    fn unpack(&mut self) -> Result<()> {
        self.ready_taken = 0;
        let Some(gunzip) = &mut self.gunzip else {
            self.ready = std::mem::take(&mut self.packed);
            self.packed_taken = 0;
            return Ok(());
        };
        self.ready.clear();
        let rest = self.packed.get(self.packed_taken..).unwrap_or_default();
        let taken = gunzip.write(rest).map_err(|_| refused_archive("is not valid gzip"))?;
        if taken == 0 {
            return Err(refused_archive("has something behind its end"));
        }
        self.packed_taken += taken;
        std::mem::swap(gunzip.get_mut(), &mut self.ready);
        self.count()
    }

    fn end(&mut self) -> Result<()> {
        self.ended = true;
        if let Some(gunzip) = &mut self.gunzip {
            self.ready.clear();
            self.ready_taken = 0;
            gunzip.try_finish().map_err(|_| refused_archive("ends in the middle"))?;
            std::mem::swap(gunzip.get_mut(), &mut self.ready);
            self.count()?;
        }
        Ok(())
    }

    fn count(&mut self) -> Result<()> {
        self.produced += self.ready.len() as u64;
        check_ratio(&self.limits, self.received, self.produced)
    }
}
