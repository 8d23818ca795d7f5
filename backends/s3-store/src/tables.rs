//! The tables of the cache: identities, base, journal, placeholders. SQL, and no protocol.

use std::collections::HashSet;

use fuse::store::{Errno, Ino, Result, StoreError};
use parking_lot::{RwLock, RwLockReadGuard, RwLockWriteGuard};
use rusqlite::{Row, params};
use s3::replica::Head;
use s3::tree::{Changes, Chunk, Entry, Hash, Name, Node, NodeId, Place, Tree};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use sqlite::tables::nodes::{signed, unsigned};
use sqlite::tables::{Db, content, note_copied};

/// The version of the tables in `schema.sql`, in the cache of a mount.
pub(super) const CACHE_VERSION: &str = "12";

pub(super) fn encode(value: &impl Serialize) -> Result<Vec<u8>> {
    postcard::to_allocvec(value).map_err(|error| StoreError::storage(Errno::IO, error))
}

pub(super) fn decode<T: DeserializeOwned>(bytes: &[u8]) -> Result<T> {
    let damaged = |error| StoreError::storage(Errno::IO, format!("the cache is damaged: {error}"));
    postcard::from_bytes(bytes).map_err(damaged)
}

pub(super) fn setting(db: &Db, name: &str) -> Result<Option<String>> {
    db.row("SELECT value FROM s3_setting WHERE name = ?1", [name], |row| row.get(0))
}

pub(super) fn set_setting(db: &Db, name: &str, value: &str) -> Result<()> {
    db.execute(
        "INSERT INTO s3_setting VALUES (?1, ?2) ON CONFLICT (name) DO UPDATE SET value = excluded.value",
        [name, value],
    )?;
    Ok(())
}

pub(super) fn head(db: &Db) -> Result<Head> {
    let found = db.row("SELECT head, hash, first FROM s3_state", (), |row| {
        Ok(Head { number: unsigned(row.get(0)?), hash: Hash(row.get(1)?), first: Hash(row.get(2)?) })
    })?;
    Ok(found.unwrap_or_default())
}

/// Moves the head. The outcome of a commit that was sent for the number after the old head is known now.
fn set_head(db: &Db, head: Head) -> Result<()> {
    db.execute(
        "UPDATE s3_state SET head = ?1, hash = ?2, first = ?3",
        params![signed(head.number), head.hash.0, head.first.0],
    )?;
    db.execute("DELETE FROM s3_intent", ())?;
    Ok(())
}

/// The numbers in the one column of a query.
fn numbers(db: &Db, query: &'static str) -> Result<Vec<u64>> {
    let mut statement = db.statement(query)?;
    let rows = statement.query_map((), |row| row.get(0).map(unsigned))?;
    Ok(rows.collect::<rusqlite::Result<_>>()?)
}

pub(super) fn writers(db: &Db) -> Result<Vec<u64>> {
    numbers(db, "SELECT id FROM s3_writer")
}

pub(super) fn add_writer(db: &Db, id: u64) -> Result<()> {
    db.execute("INSERT INTO s3_writer VALUES (?1)", [signed(id)])?;
    Ok(())
}

pub(super) fn intents(db: &Db) -> Result<Vec<[u8; 16]>> {
    let mut statement = db.statement("SELECT nonce FROM s3_intent")?;
    let rows = statement.query_map((), |row| row.get(0))?;
    Ok(rows.collect::<rusqlite::Result<_>>()?)
}

pub(super) fn add_intent(db: &Db, nonce: [u8; 16]) -> Result<()> {
    db.execute("INSERT INTO s3_intent VALUES (?1)", [nonce.as_slice()])?;
    Ok(())
}

// ── Identities ─────────────────────────────────────────────────────────────────────────────────

/// The identity in a column of a row and the next one.
fn node_id(row: &Row<'_>, column: usize) -> rusqlite::Result<NodeId> {
    Ok(NodeId { writer: unsigned(row.get(column)?), ino: unsigned(row.get(column + 1)?) })
}

pub(super) fn identity(db: &Db, ino: Ino) -> Result<Option<NodeId>> {
    let query = "SELECT writer, number FROM s3_identity WHERE ino = ?1";
    db.row(query, [signed(ino)], |row| node_id(row, 0))
}

pub(super) fn ino_of(db: &Db, id: NodeId) -> Result<Option<Ino>> {
    db.row(
        "SELECT ino FROM s3_identity WHERE writer = ?1 AND number = ?2",
        [signed(id.writer), signed(id.ino)],
        |row| row.get(0).map(unsigned),
    )
}

/// Gives an inode an identity, in place of the one it had.
pub(super) fn identify(db: &Db, ino: Ino, id: NodeId) -> Result<()> {
    db.execute(
        "INSERT INTO s3_identity VALUES (?1, ?2, ?3)
         ON CONFLICT (ino) DO UPDATE SET writer = excluded.writer, number = excluded.number",
        [signed(ino), signed(id.writer), signed(id.ino)],
    )?;
    Ok(())
}

pub(super) fn forget_identity(db: &Db, id: NodeId) -> Result<()> {
    db.execute("DELETE FROM s3_identity WHERE writer = ?1 AND number = ?2", [signed(id.writer), signed(id.ino)])?;
    Ok(())
}

/// Forgets the identities of inodes that are gone, where neither the base nor the journal refers to them, and no commit
/// that may be in the log. The last inode number that has an identity after that.
pub(super) fn tidy_identities(db: &Db) -> Result<Ino> {
    db.execute(
        "DELETE FROM s3_identity
         WHERE NOT EXISTS (SELECT 1 FROM inode i WHERE i.ino = s3_identity.ino)
           AND NOT EXISTS (SELECT 1 FROM s3_base_node b
                           WHERE b.writer = s3_identity.writer AND b.number = s3_identity.number)
           AND NOT EXISTS (SELECT 1 FROM s3_dirty_name n WHERE n.parent = s3_identity.ino)
           AND NOT EXISTS (SELECT 1 FROM s3_intent)",
        (),
    )?;
    let last = db.row("SELECT max(ino) FROM s3_identity", (), |row| row.get(0))?;
    Ok(last.map_or(0, unsigned))
}

// ── The base ───────────────────────────────────────────────────────────────────────────────────

/// The base as the tables have it.
pub(super) fn base(db: &Db) -> Result<Tree> {
    let mut changes = Changes::default();
    let mut statement = db.statement("SELECT writer, number, node FROM s3_base_node")?;
    let mut rows = statement.query(())?;
    while let Some(row) = rows.next()? {
        let node = row.get_ref(2)?.as_blob().map_err(rusqlite::Error::from)?;
        changes.nodes.insert(node_id(row, 0)?, decode(node)?);
    }
    let mut statement = db.statement("SELECT dir_writer, dir_number, name, writer, number FROM s3_base_name")?;
    let mut rows = statement.query(())?;
    while let Some(row) = rows.next()? {
        let entry = (node_id(row, 0)?, Name(row.get(2)?));
        changes.names.insert(entry, Some(node_id(row, 3)?));
    }
    let damaged = |error| StoreError::storage(Errno::IO, format!("the cache is damaged: {error}"));
    Tree::of(&changes).map_err(damaged)
}

/// A node of the base.
pub(super) fn base_node(db: &Db, id: NodeId) -> Result<Option<Node>> {
    let query = "SELECT node FROM s3_base_node WHERE writer = ?1 AND number = ?2";
    let node: Option<Vec<u8>> = db.row(query, [signed(id.writer), signed(id.ino)], |row| row.get(0))?;
    node.map(|node| decode(&node)).transpose()
}

/// The changes of a step of the log in the tables.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct Advance {
    head: Head,
    nodes: Vec<(NodeId, Option<Node>)>,
    names: Vec<(Entry, Option<NodeId>)>,
    /// The batch up to which the journal has nothing that the base lacks.
    mark: Option<u64>,
}

impl Advance {
    /// Applies `changes`, which lead to `head`, to the base in memory.
    pub(super) fn make(base: &mut Tree, head: Head, changes: &Changes, mark: Option<u64>) -> Self {
        let names = changes.names.keys();
        let unnamed: Vec<NodeId> = names.filter_map(|entry| base.name(entry)).collect();
        base.apply(changes);
        let given = changes.nodes.keys();
        let given = given.filter_map(|id| Some((*id, Some(base.node(*id)?.clone()))));
        let gone = unnamed.iter().filter(|id| base.node(**id).is_none());
        let nodes = given.chain(gone.map(|id| (*id, None))).collect();
        let names = changes.names.keys();
        let names = names.map(|entry| (entry.clone(), base.name(entry)));
        Self { head, nodes, names: names.collect(), mark }
    }

    /// Takes the step in the tables.
    pub(super) fn save(&self, db: &Db) -> Result<()> {
        for (id, node) in &self.nodes {
            match node {
                Some(node) => set_base_node(db, *id, node)?,
                None => remove_base_node(db, *id)?,
            }
        }
        for (entry, to) in &self.names {
            set_base_name(db, entry, *to)?;
        }
        set_head(db, self.head)?;
        match self.mark {
            Some(mark) => clear_journal(db, mark),
            None => Ok(()),
        }
    }
}

/// Removes a node from the base, and its identity if the working copy has no file of it.
fn remove_base_node(db: &Db, id: NodeId) -> Result<()> {
    db.execute("DELETE FROM s3_base_node WHERE writer = ?1 AND number = ?2", [signed(id.writer), signed(id.ino)])?;
    let is_gone = match ino_of(db, id)? {
        Some(ino) => sqlite::tables::nodes::find(db, ino)?.is_none_or(|it| it.nlink == 0),
        None => false,
    };
    if is_gone { forget_identity(db, id) } else { Ok(()) }
}

fn set_base_node(db: &Db, id: NodeId, node: &Node) -> Result<()> {
    db.execute(
        "INSERT INTO s3_base_node VALUES (?1, ?2, ?3)
         ON CONFLICT (writer, number) DO UPDATE SET node = excluded.node",
        params![signed(id.writer), signed(id.ino), encode(node)?],
    )?;
    Ok(())
}

fn set_base_name(db: &Db, (dir, name): &Entry, to: Option<NodeId>) -> Result<()> {
    match to {
        Some(id) => db.execute(
            "INSERT INTO s3_base_name VALUES (?1, ?2, ?3, ?4, ?5)
             ON CONFLICT (dir_writer, dir_number, name)
             DO UPDATE SET writer = excluded.writer, number = excluded.number",
            params![signed(dir.writer), signed(dir.ino), name.0, signed(id.writer), signed(id.ino)],
        )?,
        None => db.execute(
            "DELETE FROM s3_base_name WHERE dir_writer = ?1 AND dir_number = ?2 AND name = ?3",
            params![signed(dir.writer), signed(dir.ino), name.0],
        )?,
    };
    Ok(())
}

/// Empties the base: everything that has a name in the working copy is then a local change.
pub(super) fn clear_base(db: &Db) -> Result<()> {
    db.execute("DELETE FROM s3_base_node", ())?;
    db.execute("DELETE FROM s3_base_name", ())?;
    db.execute("UPDATE s3_state SET head = 0, hash = zeroblob(32), first = zeroblob(32)", ())?;
    db.execute("DELETE FROM s3_intent", ())?;
    db.execute(
        "INSERT INTO s3_dirty_name SELECT parent, name, 0 FROM dirent WHERE true
         ON CONFLICT (parent, name) DO NOTHING",
        (),
    )?;
    Ok(())
}

// ── The journal ────────────────────────────────────────────────────────────────────────────────

/// Ends the batch that changes are journalled under; its number.
pub(super) fn end_batch(db: &Db) -> Result<u64> {
    let ended = db.row("UPDATE s3_state SET batch = batch + 1 RETURNING batch - 1", (), |row| row.get(0))?;
    Ok(unsigned(ended.unwrap_or(0)))
}

pub(super) fn dirty_inodes(db: &Db) -> Result<Vec<Ino>> {
    numbers(db, "SELECT ino FROM s3_dirty_inode")
}

pub(super) fn dirty_names(db: &Db) -> Result<Vec<(Ino, Vec<u8>)>> {
    let mut statement = db.statement("SELECT parent, name FROM s3_dirty_name")?;
    let rows = statement.query_map((), |row| Ok((unsigned(row.get(0)?), row.get(1)?)))?;
    Ok(rows.collect::<rusqlite::Result<_>>()?)
}

/// Whether nothing is journalled, or will be by a change that is open.
pub(super) fn is_clean(db: &Db) -> Result<bool> {
    let any = db.row(
        "SELECT 1 WHERE EXISTS (SELECT 1 FROM s3_dirty_inode) OR EXISTS (SELECT 1 FROM s3_dirty_name)",
        (),
        |_| Ok(()),
    )?;
    Ok(any.is_none() && !db.has_open_changes())
}

/// Whether an inode is journalled.
pub(super) fn is_dirty(db: &Db, ino: Ino) -> Result<bool> {
    db.write_rows()?;
    let any = db.row("SELECT 1 FROM s3_dirty_inode WHERE ino = ?1", [signed(ino)], |_| Ok(()))?;
    Ok(any.is_some())
}

/// How many inodes and names are journalled.
pub(super) fn pending(db: &Db) -> Result<u64> {
    let count =
        db.row("SELECT (SELECT count(*) FROM s3_dirty_inode) + (SELECT count(*) FROM s3_dirty_name)", (), |row| {
            row.get(0)
        })?;
    Ok(unsigned(count.unwrap_or(0)))
}

/// Clears journal entries up to a batch, unless they were journalled again since.
pub(super) fn clear_journal(db: &Db, batch: u64) -> Result<()> {
    db.write_rows()?;
    let mut committed = db.statement("SELECT ino FROM s3_dirty_inode WHERE batch <= ?1")?;
    let inos = committed.query_map([signed(batch)], |row| row.get(0).map(unsigned))?;
    note_copied(db, inos.collect::<rusqlite::Result<Vec<Ino>>>()?)?;
    db.execute("DELETE FROM s3_dirty_inode WHERE batch <= ?1", [signed(batch)])?;
    db.execute("DELETE FROM s3_dirty_name WHERE batch <= ?1", [signed(batch)])?;
    Ok(())
}

pub(super) fn journal_inode(db: &Db, ino: Ino) -> Result<()> {
    db.execute(
        "INSERT INTO s3_dirty_inode SELECT ?1, batch FROM s3_state WHERE true
         ON CONFLICT (ino) DO UPDATE SET batch = excluded.batch",
        [signed(ino)],
    )?;
    Ok(())
}

pub(super) fn journal_name(db: &Db, parent: Ino, name: &[u8]) -> Result<()> {
    db.execute(
        "INSERT INTO s3_dirty_name SELECT ?1, ?2, batch FROM s3_state WHERE true
         ON CONFLICT (parent, name) DO UPDATE SET batch = excluded.batch",
        params![signed(parent), name],
    )?;
    Ok(())
}

/// Runs `work`, which changes the working copy without journalling it.
pub(super) fn adopting<T>(db: &Db, work: impl FnOnce(&Db) -> Result<T>) -> Result<T> {
    // Rows that callers' changes have left to the commit are journalled.
    db.write_rows()?;
    db.execute("UPDATE s3_state SET is_adopting = 1", ())?;
    let done = work(db)?;
    db.write_rows()?;
    db.execute("UPDATE s3_state SET is_adopting = 0", ())?;
    Ok(done)
}

// ── Placeholders ───────────────────────────────────────────────────────────────────────────────

/// The inodes with missing chunks, as the table has them. Changed only under the store's lock.
#[derive(Debug, Default)]
pub(super) struct Placeholders(RwLock<HashSet<Ino>>);

impl Placeholders {
    fn read(&self) -> RwLockReadGuard<'_, HashSet<Ino>> {
        self.0.read()
    }

    pub(super) fn write(&self) -> RwLockWriteGuard<'_, HashSet<Ino>> {
        self.0.write()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.read().is_empty()
    }

    pub(super) fn contains(&self, ino: Ino) -> bool {
        self.read().contains(&ino)
    }
}

/// The missing chunks of a file with an index in `first..=last`.
pub(super) fn missing(db: &Db, ino: Ino, first: u64, last: u64) -> Result<Vec<(u64, Chunk)>> {
    let mut statement = db.statement("SELECT at, chunk FROM s3_missing WHERE ino = ?1 AND at BETWEEN ?2 AND ?3")?;
    let mut rows = statement.query([signed(ino), signed(first), signed(last)])?;
    let mut found = Vec::new();
    while let Some(row) = rows.next()? {
        let chunk = row.get_ref(1)?.as_blob().map_err(rusqlite::Error::from)?;
        found.push((unsigned(row.get(0)?), decode(chunk)?));
    }
    Ok(found)
}

/// The inodes with missing chunks.
pub(super) fn placeholders(db: &Db) -> Result<Vec<Ino>> {
    numbers(db, "SELECT DISTINCT ino FROM s3_missing")
}

/// The number of regular files with a name that lack their first chunk.
pub(super) fn without_beginning(db: &Db) -> Result<u64> {
    let count = db.row(
        "SELECT count(*) FROM s3_missing m JOIN inode i ON i.ino = m.ino WHERE m.at = 0 AND i.nlink > 0",
        (),
        |row| row.get(0),
    )?;
    Ok(count.map_or(0, unsigned))
}

/// The files of at most `longest` bytes that lack their first chunk, the newest first.
pub(super) fn beginnings_missing(db: &Db, longest: u64) -> Result<Vec<Ino>> {
    let mut statement = db.statement(
        "SELECT m.ino FROM s3_missing m JOIN inode i ON i.ino = m.ino
         WHERE m.at = 0 AND i.nlink > 0 AND i.size <= ?1 ORDER BY i.mtime DESC",
    )?;
    let rows = statement.query_map([signed(longest)], |row| row.get(0).map(unsigned))?;
    Ok(rows.collect::<rusqlite::Result<_>>()?)
}

pub(super) fn is_placeholder(db: &Db, ino: Ino) -> Result<bool> {
    let any = db.row("SELECT 1 FROM s3_missing WHERE ino = ?1 LIMIT 1", [signed(ino)], |_| Ok(()))?;
    Ok(any.is_some())
}

pub(super) fn set_missing(db: &Db, ino: Ino, at: u64, chunk: &Chunk) -> Result<()> {
    db.execute(
        "INSERT INTO s3_missing VALUES (?1, ?2, ?3)
         ON CONFLICT (ino, at) DO UPDATE SET chunk = excluded.chunk",
        params![signed(ino), signed(at), encode(chunk)?],
    )?;
    Ok(())
}

/// Takes another place for the bytes of a chunk, if it is missing.
pub(super) fn move_missing(db: &Db, ino: Ino, at: u64, chunk: &Chunk) -> Result<()> {
    if chunk.place != Place::Local {
        db.execute(
            "UPDATE s3_missing SET chunk = ?3 WHERE ino = ?1 AND at = ?2",
            params![signed(ino), signed(at), encode(chunk)?],
        )?;
    }
    Ok(())
}

/// The bytes of chunks from `at` on, or of the one at `at`, are here, or not wanted.
pub(super) fn clear_missing(db: &Db, ino: Ino, at: u64, and_after: bool) -> Result<()> {
    if and_after {
        db.execute("DELETE FROM s3_missing WHERE ino = ?1 AND at >= ?2", [signed(ino), signed(at)])?
    } else {
        db.execute("DELETE FROM s3_missing WHERE ino = ?1 AND at = ?2", [signed(ino), signed(at)])?
    };
    Ok(())
}

/// Notes bytes that belong into a file's tail from `start` on; a transaction does not include tails.
pub(super) fn set_tail(db: &Db, ino: Ino, start: u64, bytes: &[u8]) -> Result<()> {
    db.execute(
        "INSERT INTO s3_tail VALUES (?1, ?2, ?3)
         ON CONFLICT (ino, start) DO UPDATE SET bytes = excluded.bytes",
        params![signed(ino), signed(start), bytes],
    )?;
    Ok(())
}

/// A file that may have lost the end of its tail with the power.
#[derive(Clone, Copy, Debug)]
pub(super) struct LostEnd {
    pub(super) ino: Ino,
    /// The bytes before this one are there.
    pub(super) durable: u64,
    /// It had been truncated.
    pub(super) is_cut: bool,
}

/// Notes a file that has lost the end of its tail.
pub(super) fn note_lost(db: &Db, ino: Ino, durable: u64, is_cut: bool) -> Result<()> {
    // Older caches have no such table.
    db.connection.execute_batch(
        "CREATE TABLE IF NOT EXISTS s3_lost (
           ino INTEGER PRIMARY KEY, durable INTEGER NOT NULL, is_cut INTEGER NOT NULL
         ) STRICT",
    )?;
    db.execute("INSERT OR REPLACE INTO s3_lost VALUES (?1, ?2, ?3)", params![signed(ino), signed(durable), is_cut])?;
    Ok(())
}

/// The noted files.
pub(super) fn lost(db: &Db) -> Result<Vec<LostEnd>> {
    let has_table = db.row("SELECT 1 FROM sqlite_schema WHERE name = 's3_lost'", (), |_| Ok(()))?;
    if has_table.is_none() {
        return Ok(Vec::new());
    }
    let mut statement = db.statement("SELECT ino, durable, is_cut FROM s3_lost")?;
    let rows = statement.query_map((), |row| {
        Ok(LostEnd { ino: unsigned(row.get(0)?), durable: unsigned(row.get(1)?), is_cut: row.get(2)? })
    })?;
    Ok(rows.collect::<rusqlite::Result<_>>()?)
}

/// Forgets the noted files.
pub(super) fn forget_lost(db: &Db) -> Result<()> {
    db.execute("DELETE FROM s3_lost", ())?;
    Ok(())
}

/// Whether bytes are noted that belong into a file's tail.
pub(super) fn has_merged_tail(db: &Db, ino: Ino) -> Result<bool> {
    let any = db.row("SELECT 1 FROM s3_tail WHERE ino = ?1 LIMIT 1", [signed(ino)], |_| Ok(()))?;
    Ok(any.is_some())
}

/// Writes noted bytes into their tails: before any other write to these files. `sync` makes the tables and the tails
/// durable: a tail is overwritten only when its new bytes are, and these are forgotten only when the tail is.
pub(super) fn write_tails(db: &Db, sync: impl Fn() -> Result<()>) -> Result<()> {
    let tails: Vec<(Ino, u64, Vec<u8>)> = {
        let mut statement = db.statement("SELECT ino, start, bytes FROM s3_tail")?;
        let rows = statement.query_map((), |row| Ok((unsigned(row.get(0)?), unsigned(row.get(1)?), row.get(2)?)))?;
        rows.collect::<rusqlite::Result<_>>()?
    };
    if tails.is_empty() {
        return Ok(());
    }
    sync()?;
    for (ino, start, bytes) in &tails {
        let end = start + bytes.len() as u64;
        // After a power loss, it may be shorter than its file.
        content::lengthen_tail(db, *ino, end)?;
        content::write_tail(db, *ino, end, *start, bytes)?;
    }
    sync()?;
    db.transaction(|db| {
        for (ino, start, bytes) in &tails {
            content::note_synced(db, *ino, start + bytes.len() as u64)?;
        }
        db.execute("DELETE FROM s3_tail", ())
    })?;
    Ok(())
}
