//! File content: sizes, holes, ranges, memory maps.

use std::fs::{self, File};
use std::io::Write;
use std::ops::Range;
use std::os::unix::fs::{FileExt, MetadataExt};

use memmap2::MmapMut;
use rustix::fs::{FallocateFlags, SeekFrom, fallocate, seek};
use rustix::io::Errno;

use super::check::{Check, Shortfall, did, must, refused, same};
use super::names::read;
use super::{Feature, Group, TestDir};

const MIB: u64 = 1 << 20;

const CONTENT: Group = Group("content");

pub(super) const FEATURES: &[Feature] = &[
    CONTENT.feature("truncate by path and by descriptor", |test_dir| {
        did("creating", fs::write(test_dir.at("a"), "0123456789"))?;
        let file = did("opening", File::options().write(true).open(test_dir.at("a")))?;
        did("cutting", file.set_len(4))?;
        same("content", read(&test_dir.at("a"))?, "0123".to_owned())?;
        did("extending", file.set_len(6))?;
        same("content", read(&test_dir.at("a"))?, "0123\0\0".to_owned())?;
        did("truncate by path", nix::unistd::truncate(&test_dir.at("a"), 2))?;
        same("content", read(&test_dir.at("a"))?, "01".to_owned())?;
        refused("truncating a directory", nix::unistd::truncate(&test_dir.path, 0), Errno::ISDIR)
    }),
    CONTENT.feature("overwriting in the middle of a file open for reading", |test_dir| {
        did("creating", fs::write(test_dir.at("a"), "0123456789"))?;
        let reader = did("opening", File::open(test_dir.at("a")))?;
        same("before", at(&reader, 0, 10)?, b"0123456789".to_vec())?;
        let writer = did("opening", File::options().write(true).open(test_dir.at("a")))?;
        did("writing", writer.write_all_at(b"XY", 4))?;
        same("after", at(&reader, 0, 10)?, b"0123XY6789".to_vec())
    }),
    CONTENT.feature("large files: 3 MB byte for byte", |test_dir| {
        let bytes: Vec<u8> = (0..3_000_000_u32).map(|n| (n * 7 % 251) as u8).collect();
        did("writing", fs::write(test_dir.at("large"), &bytes))?;
        let back = did("reading", fs::read(test_dir.at("large")))?;
        must(back == bytes, || "other bytes came back")
    }),
    CONTENT.feature("sparse files: holes read as zeros and take no space", |test_dir| {
        let file = test_dir.create("sparse")?;
        did("writing at 5 GiB", file.write_all_at(b"end", 5 * 1024 * MIB))?;
        let meta = did("stat", file.metadata())?;
        same("size", meta.len(), 5 * 1024 * MIB + 3)?;
        same("bytes at the hole's end", at(&file, 5 * 1024 * MIB - 1, 4)?, b"\0end".to_vec())?;
        same("bytes in the hole", at(&file, 4096 * MIB, 3)?, vec![0; 3])?;
        must(meta.blocks() * 512 < MIB, || format!("{} blocks are allocated", meta.blocks()))
    }),
    CONTENT.feature("`SEEK_DATA` and `SEEK_HOLE`", |test_dir| {
        let file = test_dir.create("sparse")?;
        did("writing", file.write_all_at(b"data", 8 * MIB))?;
        did("extending", file.set_len(16 * MIB))?;
        let data = did("SEEK_DATA", seek(&file, SeekFrom::Data(0)))?;
        must((4 * MIB..=8 * MIB).contains(&data), || format!("data begins at {data}, not {}", 8 * MIB))?;
        let hole = did("SEEK_HOLE", seek(&file, SeekFrom::Hole(8 * MIB)))?;
        must(hole > 8 * MIB && hole < 12 * MIB, || format!("the hole begins at {hole}, after {}", 8 * MIB))?;
        refused("beyond the end", seek(&file, SeekFrom::Data(17 * MIB)), Errno::NXIO)
    }),
    CONTENT.feature("`SEEK_DATA` hides nothing that a live map has written", mapped_holes),
    CONTENT.feature("fallocate: reserve, with and without size", |test_dir| {
        let file = test_dir.create("a")?;
        did("reserving", fallocate(&file, FallocateFlags::empty(), 0, MIB))?;
        same("size", did("stat", file.metadata())?.len(), MIB)?;
        did("reserving", fallocate(&file, FallocateFlags::KEEP_SIZE, 0, 2 * MIB))?;
        same("size", did("stat", file.metadata())?.len(), MIB)
    }),
    CONTENT.feature("fallocate: punch a hole, zero a range", ranges),
    CONTENT.feature("mmap: shared writes reach the file", mapped),
    CONTENT.feature("mmap: writes by others show in the map", |test_dir| {
        did("creating", fs::write(test_dir.at("a"), "0123456789"))?;
        let file = test_dir.open("a")?;
        let map = map(&file)?;
        same("before", map[..4].to_vec(), b"0123".to_vec())?;
        did("writing", file.write_all_at(b"abcd", 0))?;
        same("after", map[..4].to_vec(), b"abcd".to_vec())
    }),
    CONTENT.feature("statfs has room and a name length", |test_dir| {
        let fs = did("statvfs", rustix::fs::statvfs(&test_dir.path))?;
        same("longest name", fs.f_namemax, 255)?;
        must(fs.f_blocks >= fs.f_bfree && fs.f_bavail > 0, || {
            format!("{} of {} blocks free, {} available", fs.f_bfree, fs.f_blocks, fs.f_bavail)
        })
    }),
];

fn at(file: &File, offset: u64, length: usize) -> Result<Vec<u8>, Shortfall> {
    let mut bytes = vec![0xaa; length];
    did("reading", file.read_exact_at(&mut bytes, offset))?;
    Ok(bytes)
}

fn ranges(test_dir: &TestDir) -> Check {
    let mut file = test_dir.create("a")?;
    did("writing", file.write_all(&vec![b'x'; MIB as usize]))?;
    let punch = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
    did("punching", fallocate(&file, punch, 100_000, 300_000))?;
    same("before the hole", at(&file, 99_999, 2)?, b"x\0".to_vec())?;
    same("after the hole", at(&file, 399_999, 2)?, b"\0x".to_vec())?;
    did("zeroing", fallocate(&file, FallocateFlags::ZERO_RANGE, MIB - 10, 20))?;
    same("size after zeroing past the end", did("stat", file.metadata())?.len(), MIB + 10)?;
    same("zeroed", at(&file, MIB - 11, 21)?, [b"x".to_vec(), vec![0; 20]].concat())
}

fn map(file: &File) -> Result<MmapMut, Shortfall> {
    // SAFETY: only this check uses the file, and does not truncate it while the map lives. A byte that
    // changes under the map is what the check tests for.
    #[allow(unsafe_code)]
    let map = unsafe { MmapMut::map_mut(file) };
    did("mapping", map)
}

/// What a program that copies a sparse file relies on: `cp` reads the ranges of `SEEK_DATA`, and GNU tar takes a file of 0
/// blocks for one hole.
fn mapped_holes(test_dir: &TestDir) -> Check {
    let file = test_dir.create("sparse")?;
    did("extending", file.set_len(8 * MIB))?;
    let mut map = map(&file)?;
    // The second time, holes have been asked for before.
    for places in
        [[4096, 100_000, MIB, 5 * MIB, 8 * MIB - 11], [2 * MIB + 1, 3 * MIB, 4 * MIB, 5 * MIB + 4096, 6 * MIB]]
    {
        for place in places {
            map[place as usize..][..11].copy_from_slice(b"hello world");
        }
        let data = data_ranges(&file)?;
        for place in places {
            let is_data = |byte| data.iter().any(|range| range.contains(&byte));
            must((place..place + 11).all(is_data), || format!("the bytes at {place} are in a hole; data: {data:?}"))?;
        }
        let blocks = did("stat", file.metadata())?.blocks();
        must(blocks > 0, || "the file has 0 blocks")?;
    }
    Ok(())
}

/// The ranges that are not holes.
fn data_ranges(file: &File) -> Result<Vec<Range<u64>>, Shortfall> {
    let mut ranges = Vec::new();
    let mut end = 0;
    loop {
        let start = match seek(file, SeekFrom::Data(end)) {
            Err(Errno::NXIO) => return Ok(ranges),
            start => did("SEEK_DATA", start)?,
        };
        end = did("SEEK_HOLE", seek(file, SeekFrom::Hole(start)))?;
        must(end > start, || format!("a hole at {start}, which is data"))?;
        ranges.push(start..end);
    }
}

fn mapped(test_dir: &TestDir) -> Check {
    did("creating", fs::write(test_dir.at("a"), vec![b'x'; 10_000]))?;
    let file = test_dir.open("a")?;
    let mut map = map(&file)?;
    map[5000..5005].copy_from_slice(b"hello");
    same("read after the store", at(&file, 4999, 7)?, b"xhellox".to_vec())?;
    did("msync", map.flush())?;
    drop(map);
    drop(file);
    let text = read(&test_dir.at("a"))?;
    same("after closing", &text[4999..5006], "xhellox")?;
    same("size", text.len(), 10_000)
}
