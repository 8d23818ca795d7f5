//! The text of a recall: a first line, and a section for each note that fits into the budget.
//!
//! [`super::recall`] finds and orders the notes, [`super::passage`] cuts long ones.

use std::collections::HashMap;

use fuse::store::{Ino, Result, Timestamp};
use rusqlite::CachedStatement;
use sqlite::tables::nodes::{signed, unsigned};
use sqlite::tables::{Db, first};

use crate::passage::{self, SearchWord};
use crate::paths::Scope;
use crate::question::Question;
use crate::request::Strategy;
use crate::search::{Hit, body};
use crate::{Failure, date};

/// The fewest tokens of a note in an answer: `## /a`, a newline, and a word.
const SECTION_MIN: u64 = 4;

/// The most tokens of a note, heading included, that is always shown whole: short notes, such as the turns of a dialogue,
/// lose their sense in pieces. Chosen on one half of the corpora of `make corpora`, like the two constants below.
const WHOLE: u64 = 125;

/// The tokens of a longer note's passage, so that more notes fit into a small budget.
const PASSAGE: u64 = 45;

/// A tenth of the budget is the limit of both where that is more.
const SHARE: u64 = 10;

/// The bytes of a token in English text, for notes without a count.
const BYTES_OF_TOKEN: u64 = 4;

/// How many passages may be too long for the rest of the budget, before no more are cut.
const MISSES: usize = 4;

/// The result of a recall's search.
#[derive(Debug)]
pub(super) struct SearchResult<'a> {
    /// The ids of notes, the best first.
    pub(super) notes: Vec<i64>,
    /// Whether others may be as relevant.
    pub(super) is_limited: bool,
    /// The words to look for in long notes.
    pub(super) wanted: Vec<SearchWord>,
    /// The words of the question that no note has.
    pub(super) missing: Vec<&'a str>,
}

/// A note as an answer shows it.
struct NoteEntry {
    hit: Hit,
    heading: String,
    /// Tokens of heading and body, if the body is short enough to be shown whole.
    tokens: Option<u64>,
}

/// The paths of an answer, relative to the directory of its request. The index has whole paths, and tokens with them.
struct RelativePaths<'a> {
    scope: &'a Scope,
    /// Tokens saved by leaving out the directory, by the first run of the relative path: only that run can merge with what
    /// precedes it.
    saved: HashMap<String, i64>,
}

impl RelativePaths<'_> {
    fn shorten(&mut self, note: &mut NoteEntry) {
        let Some(path_and_rest) = note.heading.strip_prefix("## ") else {
            return;
        };
        let Some((path, rest)) = path_and_rest.split_once('\n') else {
            return;
        };
        let relative = self.scope.relative(path);
        if relative.len() == path.len() {
            return;
        }
        // With the end of the line: a run of signs before it takes it along.
        let first = first_run(&path_and_rest[path.len() - relative.len()..]);
        let saved = match self.saved.get(first) {
            Some(saved) => *saved,
            None => {
                let cost = |path: &str| tokens::count(&format!("## {path}\n")).cast_signed();
                let saved = cost(path) - cost(relative);
                self.saved.insert(first.to_owned(), saved);
                saved
            }
        };
        note.tokens = note.tokens.map(|tokens| tokens.saturating_add_signed(-saved));
        note.heading = format!("## {relative}\n{rest}");
    }
}

/// The signs and the word with which a path begins. The vocabulary splits behind them, whatever precedes them.
fn first_run(path: &str) -> &str {
    let word = path.trim_start_matches(|c: char| !c.is_alphanumeric());
    let is_of_word = |c: char| c.is_alphabetic() || c == '\'' || !c.is_ascii();
    let rest = word.trim_start_matches(is_of_word);
    &path[..path.len() - rest.len()]
}

const SHOWN: &str = "SELECT ino, dir, name, changed, body, heading, tokens FROM memory_note WHERE id = ?1";

fn shown(statement: &mut CachedStatement<'_>, paths: &mut RelativePaths<'_>, id: i64) -> Result<Option<NoteEntry>> {
    let mut note = first(statement, [id], |row| {
        Ok(NoteEntry {
            hit: Hit {
                id,
                ino: unsigned(row.get(0)?),
                dir: unsigned(row.get(1)?),
                name: row.get(2)?,
                changed: Timestamp(row.get(3)?),
                body: row.get::<_, u32>(4)? as usize,
            },
            heading: row.get(5)?,
            tokens: row.get::<_, Option<i64>>(6)?.map(unsigned),
        })
    })?;
    if let Some(note) = &mut note {
        paths.shorten(note);
    }
    Ok(note)
}

/// The tokens that a note may have.
#[derive(Clone, Copy, Debug)]
struct Limits {
    /// Heading included, to be shown whole.
    whole: u64,
    /// Of the passage of a longer note.
    passage: u64,
}

impl Limits {
    /// Notes are cut only where the budget is too small for all of them.
    /// Reads `notes` until it is known, and leaves what it read in `read`.
    fn new(
        notes: &mut impl Iterator<Item = Result<Option<NoteEntry>>>,
        strategy: Strategy,
        budget: u64,
        read: &mut Vec<NoteEntry>,
    ) -> Result<Self> {
        let mut sum = 0;
        let mut days = Days::new(strategy);
        for note in notes {
            let Some(note) = note? else {
                continue;
            };
            sum += days.cost(note.hit.changed) + note.tokens.unwrap_or(passage::TOKENS_MAX);
            days.add(note.hit.changed, "");
            read.push(note);
            if sum > budget {
                let share = budget / SHARE;
                return Ok(Self { whole: WHOLE.max(share), passage: PASSAGE.max(share) });
            }
        }
        Ok(Self { whole: u64::MAX, passage: passage::TOKENS_MAX })
    }
}

/// The line with the date above the notes that changed on a day.
fn date_line(changed: Timestamp) -> String {
    format!("# {}\n", date(changed))
}

/// A day on which notes changed.
struct Day {
    /// Since 1970, in UTC.
    number: i64,
    /// Its date, and the sections of its notes.
    text: String,
}

/// The sections by the day on which their notes changed.
///
/// `balanced` says each day's date once, and the day with the best note comes first. The other strategies keep the order
/// of the notes, which is what they were asked for: the date is repeated where the next note is of another day.
struct Days {
    days: Vec<Day>,
    keeps_order: bool,
}

impl Days {
    fn new(strategy: Strategy) -> Self {
        Self { days: Vec::new(), keeps_order: strategy != Strategy::Balanced }
    }

    /// The day to which a note's section is added; `None` for a new one.
    fn open(&mut self, number: i64) -> Option<&mut Day> {
        let open = if self.keeps_order { self.days.len().saturating_sub(1) } else { 0 };
        let mut days = self.days.iter_mut().skip(open);
        days.find(|day| day.number == number)
    }

    fn number(changed: Timestamp) -> i64 {
        changed.0.div_euclid(86_400_000_000_000)
    }

    /// The tokens of the date above a note, if it needs one.
    fn cost(&mut self, changed: Timestamp) -> u64 {
        match self.open(Self::number(changed)) {
            Some(_) => 0,
            None => tokens::count(&date_line(changed)),
        }
    }

    fn add(&mut self, changed: Timestamp, section: &str) {
        let number = Self::number(changed);
        match self.open(number) {
            Some(day) => day.text.push_str(section),
            None => self.days.push(Day { number, text: date_line(changed) + section }),
        }
    }
}

/// A section, and its tokens.
struct Section {
    text: String,
    tokens: u64,
    is_cut: bool,
}

/// Whether any note is marked as changed: mostly none is, since a request first brings the index up to date.
struct ChangeMarks {
    is_any: bool,
}

impl ChangeMarks {
    fn new(db: &Db) -> Result<Self> {
        let any = db.row("SELECT 1 FROM memory_stale LIMIT 1", (), |_| Ok(()))?;
        Ok(Self { is_any: any.is_some() })
    }

    fn has(&self, db: &Db, ino: Ino) -> Result<bool> {
        let sql = "SELECT 1 FROM memory_stale WHERE ino = ?1";
        Ok(self.is_any && db.row(sql, [signed(ino)], |_| Ok(()))?.is_some())
    }
}

/// The section of a note; `None` if it is not text, or gone.
fn section(
    db: &Db,
    note: NoteEntry,
    limits: Limits,
    wanted: &[SearchWord],
    marked: &ChangeMarks,
) -> Result<Option<Section>> {
    let Some(text) = body(db, &note.hit)? else {
        return Ok(None);
    };
    // The token count of the index holds unless the note is marked as changed.
    let is_changed = marked.has(db, note.hit.ino)? || db.is_deferred(note.hit.ino);
    let counted = note.tokens.filter(|_| !is_changed);
    let is_short = note.tokens.is_some_and(|tokens| tokens <= limits.whole);
    if is_short && let Some(whole) = passage::whole(&text) {
        let text = note.heading + &whole;
        return Ok(Some(Section { tokens: counted.unwrap_or_else(|| tokens::count(&text)), text, is_cut: false }));
    }
    let bytes_of_token = match counted {
        Some(tokens) => (text.len() as u64).div_ceil(tokens.max(1)),
        None => BYTES_OF_TOKEN,
    };
    let most = usize::try_from(limits.passage * bytes_of_token).unwrap_or(usize::MAX);
    let text = note.heading + &passage::telling(&text, wanted, most);
    Ok(Some(Section { tokens: tokens::count(&text), text, is_cut: true }))
}

/// Writes as many notes as fit into the budget.
pub(super) fn write(
    db: &Db,
    scope: &Scope,
    relevant: &SearchResult<'_>,
    asked: &Question<'_>,
) -> std::result::Result<String, Failure> {
    let budget = asked.max_tokens;
    let found = relevant.notes.len();
    if found == 0 {
        let text = format!(
            "# nothing found\nNo note has a word of the query{} ({} notes; {}).\n",
            if asked.meant.is_by_meaning() { ", or is close to what it means" } else { "" },
            asked.notes,
            asked.meant.basis
        );
        return Ok(text);
    }
    let of_what = if relevant.is_limited { "candidates" } else { "relevant notes" };
    // The default is not said: every token of this line is one fewer for notes.
    let strategy = match asked.strategy {
        Strategy::Balanced => String::new(),
        other => format!(", {}", other.name()),
    };
    let basis = &asked.meant.basis;
    let first_line = |shown: usize| format!("# {shown} of {found} {of_what}{strategy}, {basis}\n");
    // The first line is written last, so its tokens are reserved.
    let reserved = tokens::count(&first_line(found));
    let mut used = reserved;
    let mut missing = String::new();
    if !relevant.missing.is_empty() {
        let line = format!("# in no note: {}\n", relevant.missing.join(", "));
        let cost = tokens::count(&line);
        // Missing words may take at most a quarter of the budget.
        if cost <= budget / 4 && used + cost <= budget {
            used += cost;
            missing = line;
        }
    }
    let mut paths = RelativePaths { scope, saved: HashMap::new() };
    let left = budget.saturating_sub(used);
    let notes = relevant.notes.iter();
    let mut statement = db.statement(SHOWN)?;
    let mut notes = notes.map(|id| shown(&mut statement, &mut paths, *id));
    let mut read = Vec::new();
    let limits = Limits::new(&mut notes, asked.strategy, left, &mut read)?;
    let marked = ChangeMarks::new(db)?;
    let mut days = Days::new(asked.strategy);
    let (mut shown_notes, mut misses) = (0, 0);
    for note in read.into_iter().map(|note| Ok(Some(note))).chain(notes) {
        // The smallest section has a heading of some tokens.
        if used + SECTION_MIN > budget {
            break;
        }
        let Some(note) = note? else {
            continue;
        };
        // Do not read a note that cannot fit.
        let least = match note.tokens {
            Some(tokens) if tokens <= limits.whole => tokens,
            _ if misses == MISSES => continue,
            _ => SECTION_MIN.max(limits.passage / 2),
        };
        if used + least > budget {
            continue;
        }
        let changed = note.hit.changed;
        let of_day = days.cost(changed);
        if used + of_day + least > budget {
            continue;
        }
        let Some(section) = section(db, note, limits, &relevant.wanted, &marked)? else {
            continue;
        };
        if used + of_day + section.tokens > budget {
            misses += usize::from(section.is_cut);
            continue;
        }
        used += of_day + section.tokens;
        shown_notes += 1;
        days.add(changed, &section.text);
    }
    if shown_notes == 0 {
        return Ok(format!("# {found} {of_what}, but none fits into {budget} tokens; {basis}\n"));
    }
    let mut text = first_line(shown_notes) + &missing;
    text.extend(days.days.iter().map(|day| &*day.text));
    // The vocabulary always splits between a newline and `#`, so the costs add up. A second count would take
    // as long as the rest of a recall.
    debug_assert_eq!(tokens::count(&text), used - reserved + tokens::count(&first_line(shown_notes)), "{text}");
    Ok(text)
}

#[cfg(test)]
mod tests {
    use super::first_run;

    #[test]
    fn what_a_path_saves_depends_on_its_first_run_alone() {
        let cost = |path: &str| tokens::count(&format!("## {path}\n")).cast_signed();
        let begins = [
            "notes", "0", "2026", "it's", "it's_", "AVMNotes", "été", "e\u{301}", "记忆", ".h", "--", "__init", "_",
            " a", "  ", "#", "'s", "“q”", "ñ9", "١٢",
        ];
        let ends = ["", "1", "12.md", "/0001.md", "-x/y.md", " z", "/", "'s.md", ".MD", "\u{301}x"];
        for below in ["/p1/files/", "/a b/", "/x-/", "/2026/07/", "/é/"] {
            let mut saved = std::collections::HashMap::new();
            for begin in begins {
                for end in ends {
                    let path = format!("{begin}{end}");
                    let now = cost(&format!("{below}{path}")) - cost(&path);
                    let known = saved.entry(first_run(&format!("{path}\n2026")).to_owned()).or_insert(now);
                    assert_eq!(*known, now, "{below}{path}");
                }
            }
        }
    }
}
