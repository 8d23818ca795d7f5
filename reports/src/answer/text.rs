//! The answer as plain text: whole sentences for pages, and a screen for a terminal.

use inputs::border::terminal_cell;
use unicode_width::{UnicodeWidthChar, UnicodeWidthStr};

use super::calls::CallTable;
use super::kept::losses_words;
use super::uses::{AdviceKind, Ground, SMALL_BENEFIT, UseAnswer, listed};
use super::{AnswerFigure, Confidence, Overview};
use figures::provenance::Provenance;
use figures::text::lower;
use verdicts::decide::arm_words;

/// The most lines that an answer takes in a terminal.
pub const LINES: usize = 40;
/// The most columns of a line in a terminal. Only a path or a command may be wider, so that it can be copied.
pub const WIDTH: usize = 100;

/// The most lines of one use, without a line for the facts that a policy lists.
const LINES_OF_A_USE: usize = 3;
/// The column at which the sentences of a use begin.
const INDENT: usize = 19;
/// The lines that a use gets beyond the others, if its policy lists facts.
const LINES_OF_FACTS: usize = 2;
/// A blank at which no line is broken.
const NO_BREAK: &str = "\u{a0}";
/// Uses without evidence that are answered one by one. More of them are named in one sentence.
const LISTED_WITHOUT_EVIDENCE: usize = 2;
/// Rows of the small table that a screen always has.
const FEWEST_ROWS: usize = 3;

impl UseAnswer {
    /// The advice with its confidence, and whether the policy is older than the figures.
    pub fn headline(&self) -> String {
        match (self.confidence, self.planned) {
            (Confidence::NotDecided, _) => self.whole_advice(""),
            (sure, true) => self.whole_advice(&format!(" ({})", sure.words())),
            // A policy that is written after seeing the figures proves less.
            (sure, false) => self.whole_advice(&format!(" ({}, by a policy that is newer than the run)", sure.words())),
        }
    }

    /// The candidates that an answer for the baseline does not cover, in a sentence behind the advice.
    fn not_measured_words(&self) -> String {
        let names: Vec<&str> = self.not_measured.iter().map(|name| arm_words(name)).collect();
        match (self.kind, &names[..]) {
            (AdviceKind::Keep, [only]) => format!(" {only} was not measured."),
            (AdviceKind::Keep, [_, _, ..]) => format!(" {} were not measured.", listed(&names, "and")),
            _ => String::new(),
        }
    }

    /// The advice and its exception in a sentence. `confidence` stands between them.
    pub(crate) fn whole_advice(&self, confidence: &str) -> String {
        let advice = self.advice.trim_end_matches('.');
        match self.unless.as_str() {
            "" => format!("{advice}{confidence}.{}", self.not_measured_words()),
            unless => format!("{advice}{confidence}, unless {unless}.{}", self.not_measured_words()),
        }
    }

    /// All sentences: advice, reason, costs, what would change it, the command that would decide it.
    pub fn sentences(&self) -> Vec<String> {
        let mut sentences = vec![self.headline()];
        sentences.extend(self.reasons(usize::MAX));
        sentences.extend(self.known.iter().cloned());
        sentences.extend(self.cost_words(usize::MAX));
        sentences.extend(self.other_words());
        let command = self.command_words().replace(NO_BREAK, " ");
        sentences.extend(self.fragile_versions().into_iter().next());
        let more = [self.unmeasured_words(), self.otherwise.clone(), command];
        sentences.extend(more.into_iter().filter(|words| !words.is_empty()));
        sentences
    }

    /// How many lines more the facts need that the policy lists.
    pub(crate) fn lines_of_facts(&self) -> usize {
        if self.known.is_empty() { 0 } else { LINES_OF_FACTS }
    }

    /// The sentences in at most `most` lines of `width` columns. Sentences that do not fit are left out, the least
    /// important first.
    pub fn lines(&self, width: usize, most: usize) -> Vec<String> {
        let versions = |make: &dyn Fn(usize) -> Option<String>| -> Vec<String> {
            let mut versions: Vec<String> = [3, 2, 1, 0].into_iter().filter_map(make).collect();
            versions.dedup();
            versions
        };
        let plain = |text: String| if text.is_empty() { Vec::new() } else { vec![text] };
        // What a choice costs comes before what would change it. Of what is not chosen, the reason states the cost.
        let is_chosen = matches!(self.kind, AdviceKind::Choose | AdviceKind::ChooseIf);
        let [of_reason, of_fragile, of_unmeasured, of_costs, of_change, of_others] =
            if is_chosen { [5, 4, 9, 6, 7, 8] } else { [4, 5, 9, 8, 6, 7] };
        let reasons = if is_chosen { self.benefit_versions() } else { versions(&|most| self.reasons(most)) };
        // What to do meanwhile has room before everything that is known.
        let meanwhile = match self.kind {
            AdviceKind::NotDecided => self.reasons(0).into_iter().collect(),
            _ => Vec::new(),
        };
        // Each with its place in the text. The first ones have room first; of a place, a later one that fits is better.
        let mut candidates = [
            (0, 0, vec![self.headline()]),
            (1, 1, meanwhile),
            (2, 2, plain(self.known.join(" "))),
            (3, 8, plain(self.command_words())),
            (of_reason, 1, reasons),
            (of_costs, 3, versions(&|most| self.cost_words(most).filter(|_| most > 0))),
            // The first reason has room before the benefits, the others have it after the costs.
            (of_fragile, 4, self.fragile_versions().pop().into_iter().collect()),
            (of_change, 4, self.fragile_versions()),
            (of_unmeasured, 5, plain(self.unmeasured_words())),
            (of_change, 6, plain(self.otherwise.clone())),
            (of_others, 7, self.other_words().into_iter().collect()),
        ];
        candidates.sort_by_key(|(rank, ..)| *rank);
        let mut taken: Vec<Option<&str>> = vec![None; candidates.len()];
        for (_, at, versions) in &candidates {
            let at = *at;
            for version in versions {
                let mut with = taken.clone();
                with[at] = Some(version);
                if wrap(&joined(&with), width).len() <= most {
                    taken = with;
                    break;
                }
            }
        }
        let mut lines = wrap(&joined(&taken), width);
        if lines.is_empty() || taken[0].is_none() {
            lines = wrap(&self.headline(), width);
            lines.truncate(most);
        }
        lines
    }

    /// The fewest lines that say what carries the answer, with `figures` figures of a choice; 1 if `most` lines do not.
    fn lines_with_figures(&self, width: usize, figures: usize, most: usize) -> usize {
        let is_chosen = matches!(self.kind, AdviceKind::Choose | AdviceKind::ChooseIf);
        let mut parts: Vec<String> = match self.kind {
            _ if is_chosen => {
                let shortest = self.fragile_versions().pop();
                shortest.map(|words| words.trim_end_matches('.').to_owned()).into_iter().collect()
            }
            AdviceKind::NotDecided => vec![self.reasons(0).unwrap_or_default(), self.known.join(" ")],
            _ => vec![self.reason.trim_end_matches('.').to_owned()],
        };
        if is_chosen || !self.states_figure() {
            let shown = self.figures.iter().take(if is_chosen { figures } else { 1 });
            parts.extend(shown.map(|figure| format!("{} (", lower(&figure.title))));
        }
        let parts: Vec<String> = parts.iter().map(|part| wrap(part, usize::MAX).concat()).collect();
        let has_all = |lines: &usize| {
            let said = self.lines(width, *lines).join(" ");
            parts.iter().all(|part| said.contains(part))
        };
        (1..=most).find(has_all).unwrap_or(1)
    }

    /// The reason, with at most `most` of its figures.
    fn reasons(&self, most: usize) -> Option<String> {
        let reason = Some(self.reason.trim_end_matches('.')).filter(|reason| !reason.is_empty())?;
        let against = self.compared_with(&self.figures);
        let figures = || self.figures.iter().take(most);
        match self.kind {
            AdviceKind::Choose | AdviceKind::ChooseIf => self.benefit_versions().into_iter().next(),
            // A failed gate stands in the reason.
            _ if self.states_figure() => Some(format!("{reason}.")),
            // The details of a use that is not decided come behind what to do meanwhile.
            AdviceKind::NotDecided if most == 0 => Some(format!("{}.", reason.split(". ").next().unwrap_or(reason))),
            AdviceKind::NotDecided => {
                let words: Vec<String> = figures().map(|figure| figure.words_with_bound("", &figure.needed)).collect();
                Some(format!("{reason}. Open: {}.", words.join("; ")))
            }
            AdviceKind::Keep => {
                // With little room, a figure says more than its baseline.
                let compared = if most > 1 { self.baseline_words(against) } else { String::new() };
                let behind = |words: &[&str]| {
                    let words: Vec<&str> =
                        words.iter().map(|words| words.trim()).filter(|words| !words.is_empty()).collect();
                    if words.is_empty() { String::new() } else { format!(" ({})", words.join(", ")) }
                };
                // One bound of all figures is said once.
                let bounds: Vec<&str> = figures().map(AnswerFigure::bare_bound).collect();
                let [first, others @ ..] = &bounds[..] else {
                    return Some(format!("{reason}{}.", behind(&[&compared])));
                };
                let is_common = !others.is_empty() && others.iter().all(|bound| bound == first);
                let words = figures().map(|figure| {
                    let words = match (is_common, self.ground) {
                        (true, _) => figure.words(against),
                        (false, Ground::HigherCost) => figure.words_with_bound(against, figure.bare_bound()),
                        (false, _) => figure.words_with_bound(against, &figure.needed),
                    };
                    // Beside small benefits stands what is none.
                    match (self.ground, figure.is_worse, figure.is_none) {
                        (Ground::SmallBenefit, true, _) => format!("worse: {words}"),
                        (Ground::SmallBenefit, false, true) => format!("no benefit: {words}"),
                        _ => words,
                    }
                });
                let words: Vec<String> = words.collect();
                let [needed, all] = self.needed;
                let bound = match (is_common, self.ground) {
                    (true, Ground::SmallBenefit | Ground::FewBenefits) if (2..all).contains(&needed) => {
                        format!("needed: {first} in {needed} of {all}")
                    }
                    (true, Ground::SmallBenefit | Ground::FewBenefits) => format!("needed: {first}"),
                    (true, _) => (*first).to_owned(),
                    (false, _) => String::new(),
                };
                Some(format!("{reason}{}: {}.", behind(&[&bound, &compared]), words.join("; ")))
            }
        }
    }

    /// The benefits of a choice, the longest words first. No version hides that there are more benefits.
    fn benefit_versions(&self) -> Vec<String> {
        let against = self.compared_with(&self.figures);
        let compared = self.baseline_words(against);
        let long: Vec<String> = self.figures.iter().map(|figure| figure.words(against)).collect();
        if let Some(versions) = self.session_versions(against) {
            return versions;
        }
        let short: Vec<String> = self.figures.iter().map(|figure| figure.short_words(against, "")).collect();
        let shortest: Option<String> = self.figures.first().map(AnswerFigure::shortest_words);
        let benefits = |compared: &str, words: &[String]| match self.benefits.saturating_sub(words.len()) {
            0 => format!("Benefits{compared}: {}.", words.join("; ")),
            more => format!("Benefits{compared}: {}; and {more} more.", words.join("; ")),
        };
        let mut versions = vec![benefits(&compared, &long)];
        versions.push(benefits(&compared, &short));
        versions.push(benefits("", &short));
        versions.extend(long.first().map(|first| benefits(&compared, std::slice::from_ref(first))));
        versions.extend(shortest.map(|first| benefits("", &[first])));
        versions.dedup();
        versions
    }

    /// Benefits that one example shows, beside the same sessions of every benefit: the longest words first. `None` if the
    /// benefits have no such sessions, or not the same.
    fn session_versions(&self, against: &str) -> Option<Vec<String>> {
        let first = self.figures.first()?;
        let sessions = &first.other_sessions()?.sessions;
        let ranges: Vec<&str> = self
            .figures
            .iter()
            .filter_map(|figure| figure.other_sessions().filter(|range| range.sessions == *sessions))
            .map(|range| range.figures.as_str())
            .collect();
        let is_common = ranges.len() == self.figures.len() && self.figures.len() == self.benefits;
        let has_one_bound = self.figures.iter().all(|figure| figure.needed == first.needed);
        if !is_common || !has_one_bound {
            return None;
        }
        let bound = first.bare_bound();
        let words: Vec<String> = self.figures.iter().map(|figure| figure.short_words(against, sessions)).collect();
        let all = match ranges.len() {
            1 => "it",
            2 => "both",
            _ => "all of them",
        };
        let shown = match self.sessions_with_all {
            0 => "none".to_owned(),
            shown => shown.to_string(),
        };
        let needed = format!("Needed: {bound}. One example shows it: {};", words.join("; "));
        let compared = match self.baseline_words(against).trim_start() {
            "" => String::new(),
            words => format!(", {words}"),
        };
        let verb = if self.sessions_with_all > 1 { "show" } else { "shows" };
        let others = format!("{shown} of {sessions} {verb} {all}");
        Some(vec![
            format!(
                "Needed: {bound}{compared}. One example shows it: {}; {others} ({}).",
                words.join("; "),
                ranges.join("; ")
            ),
            format!("{needed} {others} ({}).", ranges.join("; ")),
            format!("{needed} {others}."),
        ])
    }

    /// What all figures that compare are compared with; empty if they differ in it.
    fn compared_with<'a>(&self, figures: &'a [AnswerFigure]) -> &'a str {
        let mut names = figures.iter().map(|figure| figure.against.as_str()).filter(|against| !against.is_empty());
        let first = names.next().unwrap_or("");
        if names.all(|against| against == first) { first } else { "" }
    }

    /// What a sentence compares with, unless the advice or the reason before it names that.
    fn baseline_words(&self, against: &str) -> String {
        if against.is_empty() || self.advice.contains(against) || self.reason.contains(against) {
            String::new()
        } else {
            format!(" compared with {against}")
        }
    }

    /// Whether the reason already states the first figure.
    fn states_figure(&self) -> bool {
        self.figures.is_empty() || self.ground == Ground::FailedGate
    }

    /// What the candidate costs, by at most `most` figures.
    fn cost_words(&self, most: usize) -> Option<String> {
        let against = self.compared_with(&self.costs);
        let (times, others): (Vec<&AnswerFigure>, Vec<&AnswerFigure>) =
            self.costs.iter().take(most).partition(|figure| figure.ratio.is_some());
        let costs = times.into_iter().chain(others).map(|figure| figure.cost_words(against));
        let costs: Vec<String> = costs.collect();
        let compared = self.baseline_words(against);
        let whose = match self.kind {
            AdviceKind::Choose | AdviceKind::ChooseIf => format!("Costs{compared}"),
            // The reason has named the candidate and its first cost.
            _ if self.ground == Ground::HigherCost => format!("Other costs{compared}"),
            _ => format!("Costs of {}{compared}", arm_words(&self.candidate)),
        };
        (!costs.is_empty()).then(|| format!("{whose}: {}.", costs.join("; ")))
    }

    /// What makes a fragile answer so: all of it, then ever less. Empty for another answer.
    fn fragile_versions(&self) -> Vec<String> {
        let counts = (1..=self.fragile.len()).rev();
        counts.map(|count| format!("Fragile: {}.", self.fragile[..count].join("; "))).collect()
    }

    /// What no row measures, unless that makes the answer fragile.
    fn unmeasured_words(&self) -> String {
        match (self.unmeasured.as_str(), self.kind) {
            ("", _) | (_, AdviceKind::Choose | AdviceKind::ChooseIf) => String::new(),
            (words, AdviceKind::Keep) => {
                format!("No run measured {words}, but only a change would need that evidence.")
            }
            (words, AdviceKind::NotDecided) => format!("No run measured {words}."),
        }
    }

    /// The other candidates.
    fn other_words(&self) -> Option<String> {
        const SHOWN: usize = 3;
        let names_of = |names: &[&String]| {
            let shown = names.iter().take(SHOWN);
            let shown: Vec<&str> = shown.map(|name| arm_words(name)).collect();
            match names.len().saturating_sub(SHOWN) {
                0 => listed(&shown, "and"),
                more => format!("{} and {more} more", shown.join(", ")),
            }
        };
        let mut parts = Vec::new();
        let mut others: Vec<&String> = self.others.iter().collect();
        for (name, gate) in &self.failed_gates {
            others.retain(|other| *other != name);
            let mut words = arm_words(name).to_owned();
            // A sentence begins with a capital; a name such as `sqlite` stays.
            if words.starts_with("a ") {
                words.replace_range(..1, "A");
            }
            parts.push(format!("{words} fails the gate {gate}."));
        }
        for (lacking, what) in [(&self.without_benefit, "no benefit"), (&self.small_benefit, SMALL_BENEFIT)] {
            let named: Vec<&String> = others.extract_if(.., |name| lacking.contains(name)).collect();
            if !named.is_empty() {
                let verb = if named.len() == 1 { "shows" } else { "show" };
                let cost = |name: &&String| self.same_cost.iter().find(|(candidate, _)| candidate == *name);
                let costs: Vec<&str> = named.iter().filter_map(cost).map(|(_, cost)| cost.as_str()).collect();
                let costs = if costs.len() == named.len() {
                    format!(", and have this cost, too ({})", costs.join(", "))
                } else {
                    String::new()
                };
                let costs = if named.len() == 1 { costs.replacen("have", "has", 1) } else { costs };
                parts.push(format!("{} {verb} {what}{costs}.", names_of(&named)));
            }
        }
        if !others.is_empty() {
            let verdict = match self.kind {
                AdviceKind::Choose => "Other candidates that pass",
                AdviceKind::ChooseIf => "Other candidates under a condition",
                AdviceKind::Keep => "Not chosen either",
                AdviceKind::NotDecided => "Other candidates that are not decided",
            };
            parts.push(format!("{verdict}: {}.", names_of(&others)));
        }
        if !self.undecided.is_empty() {
            let undecided: Vec<&String> = self.undecided.iter().collect();
            parts.push(format!("Not decided: {}.", names_of(&undecided)));
        }
        (!parts.is_empty()).then(|| parts.join(" "))
    }

    fn command_words(&self) -> String {
        match self.command.is_empty() {
            true => String::new(),
            // Measured again beside the same work, the same command decides no more.
            false if self.needs_quiet => format!("To decide, without other work: {}", unbroken(&self.command)),
            false => format!("To decide: {}", unbroken(&self.command)),
        }
    }
}

/// Sentences in a paragraph.
fn joined(sentences: &[Option<&str>]) -> String {
    let sentences: Vec<&str> = sentences.iter().copied().flatten().collect();
    sentences.join(" ")
}

/// What a screen has room for, beyond what it always has.
#[derive(Clone, Default)]
struct Room {
    /// The most lines of each use, in the order in which they are printed.
    of_uses: Vec<usize>,
    /// The rows of the small table.
    rows: usize,
    /// Whether the table says which operations depend on the placement.
    has_placements: bool,
    /// Whether missing evidence is named with the command that makes it.
    has_command: bool,
    /// Whether failures and losses have more than two lines.
    has_all_losses: bool,
    /// Whether the A/A check has more than a line.
    is_precise: bool,
}

/// Gives one part of a screen more room.
type Step = Box<dyn Fn(&Room) -> Room>;

impl Overview {
    /// The uses that the sentences of [`Self::unanswered`] name, and the others.
    fn by_evidence(&self) -> (Vec<&UseAnswer>, Vec<&UseAnswer>) {
        // An answer that states what the run knows keeps its own lines.
        let is_named = |answer: &&UseAnswer| answer.lacks_evidence && answer.known.is_empty();
        if self.uses.iter().filter(is_named).count() > LISTED_WITHOUT_EVIDENCE {
            self.uses.iter().partition(is_named)
        } else {
            (Vec::new(), self.uses.iter().collect())
        }
    }

    /// The answer as a screen of at most [`LINES`] lines of at most [`WIDTH`] columns. `closing` are its last lines.
    pub fn terminal(&self, closing: &[String]) -> String {
        let mut room = Room { of_uses: vec![1; self.uses.len()], rows: FEWEST_ROWS, ..Room::default() };
        let mut lines = self.screen(&room, closing);
        let has_room = lines.len() < LINES;
        for wanted in self.steps().into_iter().filter(|_| has_room) {
            let more = wanted(&room);
            let longer = self.screen(&more, closing);
            if longer.len() <= LINES {
                (room, lines) = (more, longer);
            }
        }
        // A run with many policies: the last uses are in the report.
        if lines.len() > LINES {
            let tail = closing.len() + 1;
            let more = "… more is in the report; this screen ends here.".to_owned();
            let rest: Vec<String> = lines.split_off(lines.len() - closing.len());
            lines.truncate(LINES - tail);
            lines.push(more);
            lines.extend(rest);
        }
        lines.join("\n") + "\n"
    }

    /// What a screen gets beyond the least, the most important first: the whole advice for each use, its first figure, all
    /// benefits of a choice, then the details.
    fn steps(&self) -> Vec<Step> {
        let mut steps: Vec<Step> = Vec::new();
        let largest = self.most_lines(LINES_OF_A_USE + 1);
        // The words for a policy that is newer than its run take a line more.
        let most = self.most_lines(LINES_OF_A_USE + 2);
        let (_, answered) = self.by_evidence();
        let lines_of = |at: usize, lines: usize| -> Step {
            Box::new(move |room| {
                let mut more = room.clone();
                more.of_uses[at] = lines.max(room.of_uses[at]);
                more
            })
        };
        for (at, answer) in answered.iter().enumerate() {
            let lines = wrap(&answer.headline(), WIDTH - INDENT).len();
            steps.push(lines_of(at, lines.min(largest[at])));
        }
        for figures in [1, usize::MAX] {
            for (at, answer) in answered.iter().enumerate() {
                let lines = answer.lines_with_figures(WIDTH - INDENT, figures, most[at]);
                steps.push(lines_of(at, lines));
            }
        }
        steps.push(Box::new(|room| Room { has_command: true, ..room.clone() }));
        steps.push(Box::new(|room| Room { has_all_losses: true, ..room.clone() }));
        steps.push(Box::new(|room| Room { is_precise: true, ..room.clone() }));
        steps.push(Box::new(|room| Room { has_placements: true, ..room.clone() }));
        for rows in FEWEST_ROWS + 1..=self.calls.rows.len() {
            steps.push(Box::new(move |room| Room { rows, ..room.clone() }));
        }
        for lines in 2..=LINES_OF_A_USE + 1 {
            steps.extend((0..largest.len()).filter(|at| lines <= largest[*at]).map(|at| lines_of(at, lines)));
        }
        steps
    }

    fn screen(&self, room: &Room, closing: &[String]) -> Vec<String> {
        let mut lines = Vec::new();
        let about: Vec<&str> = std::iter::once("ctxbench").chain(self.about.iter().map(String::as_str)).collect();
        lines.extend(at_most(&about.join(" · "), WIDTH, 2));
        if !self.identical_arms.is_empty() {
            let sentence = format!("{}.", self.identical_arms.trim_end_matches('.'));
            lines.extend(at_most(&sentence, WIDTH, if room.is_precise { 3 } else { 1 }));
        }
        lines.extend(self.note_lines());
        let answered = self.lines_of_uses(&room.of_uses);
        let said = answered.join(" ");
        if !answered.is_empty() {
            lines.push(String::new());
            lines.extend(answered);
        }
        if !self.calls.rows.is_empty() {
            lines.push(String::new());
            lines.extend(call_lines(&self.calls, room));
        }
        lines.push(String::new());
        let losses = losses_words(&self.losses, &self.not_killed);
        let passes = match self.passes.tried {
            0 => String::new(),
            _ => self.passes.words(),
        };
        let breaks: Vec<String> = [passes, losses].into_iter().filter(|words| !words.is_empty()).collect();
        lines.extend(at_most(&breaks.join(" "), WIDTH, if room.has_all_losses { 3 } else { 2 }));
        lines.extend(self.missing_lines(&said, room.has_command));
        if lines.last().is_some_and(|line| !line.is_empty()) {
            lines.push(String::new());
        }
        lines.extend(closing.iter().map(|line| terminal_cell(line)));
        lines
    }

    fn note_lines(&self) -> Vec<String> {
        const SHOWN: usize = 2;
        let mut lines: Vec<String> = self.notes.iter().take(SHOWN).flat_map(|note| at_most(note, WIDTH, 3)).collect();
        match self.notes.len().saturating_sub(SHOWN) {
            0 => {}
            1 => lines.push("1 more note is in the report.".to_owned()),
            more => lines.push(format!("{more} more notes are in the report.")),
        }
        lines
    }

    /// The answer of each use, in at most `most` lines each and some for listed facts, with a title and what the marks mean.
    pub fn answer_lines(&self, most: usize) -> Vec<String> {
        self.lines_of_uses(&self.most_lines(most))
    }

    /// The most lines of each use, in the order in which they are printed.
    fn most_lines(&self, most: usize) -> Vec<usize> {
        let (lacking, answered) = self.by_evidence();
        let all = answered.into_iter().chain(lacking);
        all.map(|answer| most + answer.lines_of_facts()).collect()
    }

    fn lines_of_uses(&self, most: &[usize]) -> Vec<String> {
        if self.uses.is_empty() {
            return Vec::new();
        }
        let (lacking, answered) = self.by_evidence();
        let mut lines = vec!["WHERE SHOULD AN AGENT KEEP ITS FILES?".to_owned()];
        for (answer, most) in answered.into_iter().zip(most) {
            let title = cut(&terminal_cell(&answer.title), INDENT - 2);
            let of_use = answer.lines(WIDTH - INDENT, *most).into_iter().enumerate();
            lines.extend(of_use.map(|(at, line)| {
                let title = if at == 0 { title.as_str() } else { "" };
                let padding = INDENT - 1 - title.width();
                format!(" {title}{}{line}", " ".repeat(padding))
            }));
        }
        if !lacking.is_empty() {
            let titles: Vec<&str> = lacking.iter().map(|answer| answer.title.as_str()).collect();
            let sentence = format!("Not decided for lack of evidence: {}.", titles.join("; "));
            lines.extend(at_most(&sentence, WIDTH - 1, 2).into_iter().map(|line| format!(" {line}")));
        }
        let has_marks = Provenance::ALL.iter().any(|origin| {
            let mark = origin.mark();
            lines.iter().any(|line| line.contains(mark))
        });
        if has_marks {
            lines[0] += &format!("  {}", Provenance::legend());
        }
        lines
    }

    /// The missing evidence, with the first command that makes it if `has_command`. Commands that the text above names are
    /// left out.
    fn missing_lines(&self, said: &str, has_command: bool) -> Vec<String> {
        let blanks = |text: &str| text.split_whitespace().collect::<Vec<_>>().join(" ");
        let said = blanks(said);
        let missing: Vec<_> = self.missing.iter().filter(|remedy| !said.contains(&blanks(&remedy.command))).collect();
        let Some(first) = missing.first() else {
            return Vec::new();
        };
        let what = first.makes.first().map_or("", String::as_str);
        let of_all = match missing.iter().map(|remedy| remedy.makes.len()).sum::<usize>() {
            0 | 1 => String::new(),
            all => format!(" (the first of {all})"),
        };
        let with = |command: &str| format!("Missing evidence{of_all}: {what} ({command}).");
        let lines = wrap(&with(&unbroken(&first.command)), WIDTH);
        match (lines.len(), has_command) {
            (1, _) | (2, true) => lines,
            (_, true) => at_most(&with("commands: ctxbench decide"), WIDTH, 2),
            (_, false) => at_most(&with("commands: ctxbench decide"), WIDTH, 1),
        }
    }
}

/// The small table, with as many columns as fit.
fn call_lines(table: &CallTable, room: &Room) -> Vec<String> {
    let shown = table.rows.iter().take(room.rows);
    let rows: Vec<Vec<String>> = shown
        .map(|row| {
            let own = [terminal_cell(&row.label), row.baseline.clone()];
            let others = row.cells.iter().map(|cell| cell.text.clone());
            own.into_iter().chain(others).collect()
        })
        .collect();
    let own = [table.title.clone(), arm_title(&table.baseline)];
    let head: Vec<String> = own.into_iter().chain(table.arms.iter().map(|arm| arm_title(arm))).collect();
    let width = |column: usize| {
        let cells = rows.iter().filter_map(|row| row.get(column));
        let cells = cells.map(|cell| cell.width());
        cells.chain([head[column].width()]).max().unwrap_or(0)
    };
    let mut widths: Vec<usize> = Vec::new();
    let mut used = 0;
    for column in 0..head.len() {
        let width = width(column) + 2;
        if used + width > WIDTH {
            break;
        }
        used += width;
        widths.push(width);
    }
    let line = |cells: &[String]| {
        let cells = cells.iter().zip(&widths);
        let cells = cells.map(|(cell, width)| format!("{cell}{}", " ".repeat(width - cell.width())));
        format!(" {}", cells.collect::<String>()).trim_end().to_owned()
    };
    let mut lines = vec![line(&head)];
    lines.extend(rows.iter().map(|row| line(row)));
    match head.len() - widths.len() {
        0 => {}
        1 => lines.push(" 1 more arm is in the report.".to_owned()),
        more => lines.push(format!(" {more} more arms are in the report.")),
    }
    if room.has_placements && !table.placements.is_empty() {
        lines.push(format!(" {}", clauses(&table.placements, WIDTH - 1)));
    }
    lines
}

/// An arm as the head of a column.
fn arm_title(arm: &str) -> String {
    match arm {
        "direct" => "directory".to_owned(),
        "memory" => "memory (RAM)".to_owned(),
        arm => cut(&terminal_cell(arm_words(arm)), 24),
    }
}

/// The first columns of a text, with a sign if something is left out.
fn cut(text: &str, width: usize) -> String {
    if text.width() <= width {
        return text.to_owned();
    }
    let mut cut = String::new();
    for letter in text.chars() {
        if cut.width() + letter.width().unwrap_or(0) + 1 > width {
            break;
        }
        cut.push(letter);
    }
    cut + "…"
}

/// A text in at most `most` lines of `width` columns. A sign ends one that is cut: at the end of a sentence or of a clause,
/// if one fits.
fn at_most(text: &str, width: usize, most: usize) -> Vec<String> {
    let mut lines = wrap(text, width);
    if lines.len() > most {
        let ends = text.rmatch_indices(' ').filter(|(at, _)| text[..*at].ends_with(['.', ';']));
        let mut whole = ends.map(|(end, _)| wrap(&format!("{} …", &text[..end]), width));
        if let Some(fits) = whole.find(|lines| lines.len() <= most) {
            return fits;
        }
        lines.truncate(most);
        if let Some(last) = lines.last_mut() {
            let short = cut(last, width - 2);
            *last = format!("{} …", short.trim_end_matches('…').trim_end());
        }
    }
    lines
}

/// The first clauses of a sentence that fit into a line. A sign stands for the others.
fn clauses(sentence: &str, width: usize) -> String {
    if sentence.width() <= width {
        return sentence.to_owned();
    }
    let ends = sentence.rmatch_indices("; ").map(|(at, _)| format!("{}; …", &sentence[..at]));
    ends.into_iter().find(|line| line.width() <= width).unwrap_or_else(|| cut(sentence, width))
}

/// A command that no line break may divide, unless it is wider than a line.
fn unbroken(command: &str) -> String {
    command.replace(' ', NO_BREAK)
}

/// The lines of a text. A word that is wider than a line is broken.
fn wrap(text: &str, width: usize) -> Vec<String> {
    let mut lines: Vec<String> = Vec::new();
    let mut line = String::new();
    // A number stays with its sign of percent.
    let text = terminal_cell(text).replace(" %", &format!("{NO_BREAK}%"));
    let text = Provenance::unbroken(&text);
    let words = text.split(' ').filter(|word| !word.is_empty());
    // A word that is wider than a line is first broken at its own blanks.
    let words = words.flat_map(|word| if word.width() > width { word.split(NO_BREAK).collect() } else { vec![word] });
    for word in words {
        let mut word = word.replace(NO_BREAK, " ");
        if !line.is_empty() && line.width() + 1 + word.width() > width {
            lines.push(std::mem::take(&mut line));
        }
        while word.width() > width {
            let mut used = 0;
            let fits = word.char_indices().find(|(_, letter)| {
                used += letter.width().unwrap_or(0);
                used > width
            });
            let rest = word.split_off(fits.map_or(word.len(), |(at, _)| at));
            lines.push(std::mem::replace(&mut word, rest));
        }
        if !line.is_empty() {
            line.push(' ');
        }
        line += &word;
    }
    if !line.is_empty() {
        lines.push(line);
    }
    lines
}
