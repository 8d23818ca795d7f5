//! What an agent's memory finds, and how long it takes: generated notes with planted evidence, asked about.

pub mod quality;
pub mod speed;

use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::{Context, anyhow, bail};
use backends::agent_memory::{AgentMemory, EmbeddingState, Embeddings};
use backends::store::{Caller, Ino, Kind, NewNode, ROOT, Store, Timestamp};
use workloads::generate::notes::{Note, Notebook};

use crate::interrupt::Interrupt;

/// Notes between two times that the index is brought up to date, while a memory is filled.
const BATCH: usize = 256;

/// Who writes, at a time.
fn caller(now: i64) -> Caller {
    Caller {
        uid: rustix::process::geteuid().as_raw(),
        gid: rustix::process::getegid().as_raw(),
        now: Timestamp(now),
    }
}

fn node(kind: Kind) -> NewNode<'static> {
    NewNode {
        kind,
        permissions: if kind == Kind::Directory {
            0o755
        } else {
            0o644
        },
        rdev: 0,
        target: &[],
    }
}

/// A memory with the notes of a notebook, at the time its questions are asked.
pub fn fill(
    path: &Path,
    notebook: &Notebook,
    interrupt: &Interrupt,
) -> anyhow::Result<AgentMemory> {
    let now = notebook.now;
    let clock = Box::new(move || Timestamp(now));
    let memory = AgentMemory::open_at(path, &caller(now), None, clock)?;
    let started = Instant::now();
    let mut said = started;
    for (number, note) in notebook.notes.iter().enumerate() {
        let ino = write(&memory, note)?;
        if number % BATCH == BATCH - 1 {
            memory.close(ino)?;
            if interrupt.is_set() {
                bail!("interrupted");
            }
            if said.elapsed().as_secs() >= 5 {
                said = Instant::now();
                eprintln!(
                    "ctxbench: {number} of {} notes are written",
                    notebook.notes.len()
                );
            }
        }
    }
    memory.close(ROOT)?;
    if memory.notes() != notebook.notes.len() as u64 {
        bail!(
            "{} of {} notes are indexed",
            memory.notes(),
            notebook.notes.len()
        );
    }
    Ok(memory)
}

/// Embeds all notes with the model in a directory.
pub fn embed(memory: &mut AgentMemory, dir: &Path, interrupt: &Interrupt) -> anyhow::Result<()> {
    memory
        .set_embeddings(Embeddings::In(dir.to_owned()))
        .map_err(|reason| anyhow!("the embedding model: {reason}"))?;
    let started = Instant::now();
    let mut said = started;
    loop {
        match memory.embeddings() {
            EmbeddingState::Ready { waiting: 0, model } => {
                let (notes, seconds) = (memory.notes(), started.elapsed().as_secs_f64());
                eprintln!(
                    "ctxbench: {notes} notes embedded by {model} in {seconds:.1} s, {:.0} a second",
                    notes as f64 / seconds
                );
                return Ok(());
            }
            EmbeddingState::Failed(reason) | EmbeddingState::Off(reason) => {
                bail!("notes are not embedded: {reason}")
            }
            EmbeddingState::Ready { waiting, .. } if said.elapsed().as_secs() >= 5 => {
                said = Instant::now();
                eprintln!(
                    "ctxbench: {waiting} of {} notes are to be embedded",
                    memory.notes()
                );
            }
            EmbeddingState::Loading | EmbeddingState::Ready { .. } => {}
        }
        if interrupt.is_set() {
            bail!("interrupted");
        }
        std::thread::sleep(Duration::from_millis(10));
    }
}

/// Writes a note by the store's own calls.
fn write(memory: &AgentMemory, note: &Note) -> anyhow::Result<Ino> {
    let caller = caller(note.written);
    let (dir, name) = note.path.split_once('/').context("a note's path")?;
    let dir = match memory.lookup(ROOT, dir.as_bytes()) {
        Ok(attr) => attr.ino,
        Err(_) => {
            memory
                .create(&caller, ROOT, dir.as_bytes(), &node(Kind::Directory))?
                .ino
        }
    };
    let made = memory.create(&caller, dir, name.as_bytes(), &node(Kind::File))?;
    memory.write(&caller, made.ino, 0, note.text.as_bytes())?;
    Ok(made.ino)
}

/// What a request in the root directory is answered, as `cat` would show it.
pub fn ask(memory: &AgentMemory, request: &str) -> anyhow::Result<String> {
    let answer = memory
        .lookup(ROOT, request.as_bytes())
        .with_context(|| format!("asking {request}"))?;
    let mut bytes = Vec::new();
    memory.read(answer.ino, 0, answer.size as usize, &mut bytes)?;
    // As the kernel forgets it.
    memory.reclaim(answer.ino)?;
    String::from_utf8(bytes).context("an answer is text")
}

/// Words as a part of a request.
pub fn encoded(words: &str) -> String {
    let encode = |byte: u8| match byte {
        b' ' => "+".to_owned(),
        byte if byte.is_ascii_alphanumeric() => char::from(byte).to_string(),
        byte => format!("%{byte:02X}"),
    };
    words.bytes().map(encode).collect()
}
