//! What `scripts/packages` refuses to hand out.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::top;

const X86_64: u16 = 62;
const AARCH64: u16 = 183;
/// Kinds of program headers: a segment to load, and the name of a dynamic linker.
const LOAD: u32 = 1;
const INTERPRETER: u32 = 3;

/// The headers of an ELF file.
fn elf(machine: u16, kind: u32) -> Vec<u8> {
    let mut file = vec![0; 64 + 56];
    file[..6].copy_from_slice(b"\x7fELF\x02\x01");
    file[18..20].copy_from_slice(&machine.to_le_bytes());
    // Where the program headers begin, their size, and their number.
    (file[32], file[54], file[56]) = (64, 56, 1);
    file[64..68].copy_from_slice(&kind.to_le_bytes());
    file
}

fn tarball(scratch: &Path, name: &str, program: &[u8]) -> PathBuf {
    let tree = scratch.join("ctxbench-tree");
    fs::create_dir_all(&tree).unwrap();
    fs::write(tree.join("ctxbench"), program).unwrap();
    let path = scratch.join(name);
    let mut tar = Command::new("tar");
    tar.arg("-C").arg(scratch).arg("-czf").arg(&path).arg("ctxbench-tree");
    assert!(tar.status().unwrap().success());
    path
}

/// The reason of a refusal, if the packages are refused.
fn refusal(packages: &[&PathBuf]) -> Option<String> {
    let mut check = Command::new("python3");
    let output = check.arg("scripts/packages.py").arg("check").args(packages).current_dir(top()).output().unwrap();
    (!output.status.success()).then(|| String::from_utf8_lossy(&output.stderr).into_owned())
}

#[test]
fn a_package_for_another_machine_than_its_name_says_or_with_a_dynamic_program_is_refused() {
    let scratch = tempfile::tempdir().unwrap();
    let package = |name: &str, program: &[u8]| tarball(scratch.path(), name, program);
    let arm = package("ctxbench-1-aarch64-linux.tar.gz", &elf(AARCH64, LOAD));
    let npm = package("ctxbench-linux-arm64-1.tgz", &elf(AARCH64, LOAD));
    let intel = package("ctxbench-1-x86_64-linux.tar.gz", &elf(X86_64, LOAD));
    assert_eq!(refusal(&[&arm, &npm, &intel]), None);

    let other = package("ctxbench-2-aarch64-linux.tar.gz", &elf(X86_64, LOAD));
    let why = refusal(&[&arm, &other]).unwrap();
    assert!(why.contains("ctxbench-2-aarch64-linux.tar.gz is not for the machine"), "{why}");
    let script = package("ctxbench-linux-arm64-2.tgz", b"#!/bin/sh\n");
    let why = refusal(&[&script]).unwrap();
    assert!(why.contains("ctxbench-linux-arm64-2.tgz is not for the machine"), "{why}");
    let dynamic = package("ctxbench-3-aarch64-linux.tar.gz", &elf(AARCH64, INTERPRETER));
    let why = refusal(&[&dynamic]).unwrap();
    assert!(why.contains("ctxbench-3-aarch64-linux.tar.gz is not static"), "{why}");
    let portable = package("ctxbench-5.tgz", &elf(AARCH64, LOAD));
    let why = refusal(&[&portable]).unwrap();
    assert!(why.contains("ctxbench-5.tgz holds 1 programs"), "{why}");
    let longer = [elf(AARCH64, LOAD), vec![0]].concat();
    let longer = package("ctxbench-4-aarch64-linux.tar.gz", &longer);
    let why = refusal(&[&arm, &longer]).unwrap();
    assert!(why.contains("ctxbench-4-aarch64-linux.tar.gz is not that of the other packages"), "{why}");
}
