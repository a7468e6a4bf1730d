//! Any sequence of writes, any offset: what comes back is what went in, from there on.

use proptest::prelude::*;

use super::*;

const SMALL_CAP: u64 = 2048;

fn read_all(directory: &Path, from: Offsets) -> Vec<Record> {
    let mut reader = LogReader::new(directory, from);
    std::iter::from_fn(|| reader.next_record().unwrap()).collect()
}

/// All bytes of one channel, checked for being contiguous, with the offset of the first.
fn bytes_of(records: &[Record], channel: Channel) -> (Option<u64>, Vec<u8>) {
    let mut first = None;
    let mut bytes: Vec<u8> = Vec::new();
    for record in records.iter().filter(|record| record.channel == channel) {
        let start = *first.get_or_insert(record.offset);
        assert_eq!(record.offset, start + bytes.len() as u64, "a hole in {channel:?}");
        bytes.extend_from_slice(&record.data);
    }
    (first, bytes)
}

fn size_on_disk(directory: &Path) -> u64 {
    let sizes = fs::read_dir(directory).unwrap().map(|e| e.unwrap().metadata().unwrap().len());
    sizes.sum()
}

fn any_channel() -> impl Strategy<Value = Channel> {
    prop_oneof![Just(Channel::Stdout), Just(Channel::Stderr)]
}

fn any_writes() -> impl Strategy<Value = Vec<(Channel, Vec<u8>)>> {
    prop::collection::vec((any_channel(), prop::collection::vec(any::<u8>(), 0..200)), 0..60)
}

proptest! {
    #[test]
    fn replay_gives_back_the_suffix(
        writes in any_writes(),
        from in (0u64..4000, 0u64..4000),
        cap in prop_oneof![Just(SMALL_CAP), Just(DEFAULT_CAP)],
        reopen_every in 1usize..20,
    ) {
        let directory = tempfile::tempdir().unwrap();
        let mut expected = [Vec::new(), Vec::new()];
        let mut writer = LogWriter::open(directory.path(), cap).unwrap();
        for (index, (channel, data)) in writes.iter().enumerate() {
            if index % reopen_every == 0 {
                writer = LogWriter::open(directory.path(), cap).unwrap();
            }
            let all = &mut expected[channel.tag() as usize];
            writer.append(*channel, all.len() as u64, data).unwrap();
            all.extend_from_slice(data);
        }
        prop_assert!(size_on_disk(directory.path()) <= cap);

        let ends = writer.ends();
        let records = read_all(directory.path(), Offsets::default());
        let mut kept_from = ends;
        for channel in Channel::ALL {
            if let (Some(first), _) = bytes_of(&records, channel) {
                kept_from.set(channel, first);
            }
        }
        for known in [None, Some(ends)] {
            let extent = Extent::of(directory.path(), known).unwrap();
            if cap == DEFAULT_CAP {
                prop_assert_eq!(extent, Extent { kept_from: Offsets::default(), end: ends });
            } else {
                prop_assert_eq!(extent.kept_from, kept_from);
                if known.is_some() {
                    prop_assert_eq!(extent.end, ends);
                }
            }
        }

        let from = Offsets { stdout: from.0, stderr: from.1 };
        let records = read_all(directory.path(), from);
        for channel in Channel::ALL {
            let all = &expected[channel.tag() as usize];
            let (first, bytes) = bytes_of(&records, channel);
            if let Some(first) = first {
                prop_assert!(first >= from.get(channel));
                prop_assert_eq!(&bytes[..], &all[first as usize..]);
                if cap == DEFAULT_CAP {
                    prop_assert_eq!(first, from.get(channel));
                }
            } else if cap == DEFAULT_CAP {
                prop_assert!(from.get(channel) >= all.len() as u64);
            }
        }
    }

    #[test]
    fn a_torn_end_is_cut_and_writing_goes_on(writes in any_writes(), torn in 1u64..40) {
        let directory = tempfile::tempdir().unwrap();
        let mut writer = LogWriter::open(directory.path(), DEFAULT_CAP).unwrap();
        let mut ends = Offsets::default();
        for (channel, data) in &writes {
            writer.append(*channel, ends.get(*channel), data).unwrap();
            ends.set(*channel, ends.get(*channel) + data.len() as u64);
        }
        drop(writer);
        for number in segments(directory.path()).unwrap() {
            let file = fs::OpenOptions::new()
                .write(true)
                .open(segment_path(directory.path(), number))
                .unwrap();
            let length = file.metadata().unwrap().len();
            file.set_len(length.saturating_sub(torn)).unwrap();
        }
        let before = read_all(directory.path(), Offsets::default());

        let mut writer = LogWriter::open(directory.path(), DEFAULT_CAP).unwrap();
        let ends = writer.ends();
        writer.append(Channel::Stdout, ends.stdout, b"after").unwrap();
        let after = read_all(directory.path(), Offsets::default());
        prop_assert_eq!(&after[..before.len()], &before[..]);
        prop_assert_eq!(&after[before.len()].data[..], b"after");
        prop_assert_eq!(after.len(), before.len() + 1);
    }
}

#[test]
fn a_reader_follows_the_writer_across_segments() {
    let directory = tempfile::tempdir().unwrap();
    let mut writer = LogWriter::open(directory.path(), SMALL_CAP).unwrap();
    let mut reader = LogReader::new(directory.path(), Offsets::default());
    assert_eq!(reader.next_record().unwrap(), None);
    for index in 0..500u64 {
        let data = index.to_le_bytes();
        writer.append(Channel::Stdout, index * 8, &data).unwrap();
        let record = reader.next_record().unwrap().unwrap();
        assert_eq!((record.offset, &record.data[..]), (index * 8, &data[..]));
        assert_eq!(reader.next_record().unwrap(), None);
    }
    assert!(size_on_disk(directory.path()) <= SMALL_CAP);
}

#[test]
fn a_slow_reader_sees_a_later_offset_for_what_is_gone() {
    let directory = tempfile::tempdir().unwrap();
    let mut writer = LogWriter::open(directory.path(), SMALL_CAP).unwrap();
    for index in 0..1000u64 {
        writer.append(Channel::Stderr, index, b"x").unwrap();
    }
    let records = read_all(directory.path(), Offsets::default());
    let (first, bytes) = bytes_of(&records, Channel::Stderr);
    assert!(first.unwrap() > 0);
    assert_eq!(first.unwrap() + bytes.len() as u64, 1000);
}

#[test]
fn a_channel_whose_records_are_all_gone_still_has_its_end() {
    let directory = tempfile::tempdir().unwrap();
    let mut writer = LogWriter::new(directory.path(), SMALL_CAP);
    writer.append(Channel::Stdout, 0, b"early").unwrap();
    for index in 0..1000u64 {
        writer.append(Channel::Stderr, index, b"x").unwrap();
    }
    let records = read_all(directory.path(), Offsets::default());
    assert_eq!(bytes_of(&records, Channel::Stdout).0, None);
    let ends = Offsets { stdout: 5, stderr: 1000 };
    assert_eq!(LogWriter::open(directory.path(), SMALL_CAP).unwrap().ends(), ends);
    for known in [None, Some(ends)] {
        let extent = Extent::of(directory.path(), known).unwrap();
        assert_eq!((extent.kept_from.stdout, extent.end), (5, ends));
    }
}

#[test]
fn bytes_that_are_sent_again_are_logged_once() {
    let directory = tempfile::tempdir().unwrap();
    let mut writer = LogWriter::open(directory.path(), DEFAULT_CAP).unwrap();
    writer.append(Channel::Stdout, 0, b"hello").unwrap();
    writer.append(Channel::Stdout, 0, b"hello").unwrap();
    writer.append(Channel::Stdout, 2, b"llo world").unwrap();
    let records = read_all(directory.path(), Offsets::default());
    assert_eq!(bytes_of(&records, Channel::Stdout).1, b"hello world");
}

#[test]
fn nothing_written_leaves_no_file() {
    let directory = tempfile::tempdir().unwrap();
    let mut writer = LogWriter::open(directory.path(), DEFAULT_CAP).unwrap();
    writer.append(Channel::Stdout, 0, b"").unwrap();
    assert_eq!(segments(directory.path()).unwrap(), Vec::<u64>::new());
}
