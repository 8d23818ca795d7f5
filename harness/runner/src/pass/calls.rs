//! Makes and times the calls of a pass in stretches, and checks each stretch against the model.

use super::*;

pub(super) struct Replay<'a, C> {
    pub(super) pass: &'a Pass<'a>,
    pub(super) clock: &'a C,
    pub(super) watchdog: &'a Watchdog,
    pub(super) buffer: &'a mut ResultBuffer,
    pub(super) observed: Vec<Result<Observed, Errno>>,
    pub(super) times: BTreeMap<CallKind, (Histogram<u64>, u64)>,
    /// Lines whose write succeeded.
    pub(super) added: BTreeSet<Bytes>,
    /// The daemon's counters before the timed calls, plus its counts during calls that are not timed.
    pub(super) uncounted: Option<DaemonCounters>,
}

impl<C: Clock> Replay<'_, C> {
    /// Makes all calls. A stretch is a sequence of calls without a pause: it is timed first, then checked.
    pub(super) fn calls(&mut self, prepared: &[Vec<PreparedOp<'_>>], workspaces: &mut Workspaces, passed: &mut Passed) {
        let calls = self.pass.expectations.calls();
        let mut next = 0;
        while next < calls.len() {
            if self.pass.interrupt.is_set() {
                passed.interrupted = true;
                return;
            }
            let stretch = next..self.stretch_end(next);
            let before = match (calls[next].kind, &self.pass.counting) {
                (None, Counting::Now) => counters(&mut *workspaces.first).ok().flatten(),
                _ => None,
            };
            next = stretch.end;
            if !self.stretch(stretch, prepared, workspaces, passed) {
                return;
            }
            if let (Some(before), Some(uncounted)) = (before, &mut self.uncounted)
                && let Ok(Some(now)) = counters(&mut *workspaces.first)
            {
                uncounted.add(&now.since(&before));
            }
        }
    }

    /// The end of the stretch that begins with call `first`. A stretch ends at a pause, at an untimed call, or
    /// before its unchecked results exceed [`UNCHECKED_MAX`].
    fn stretch_end(&self, first: usize) -> usize {
        let expectations = self.pass.expectations;
        let calls = expectations.calls();
        let mut bytes = expected_bytes(&expectations.expected[first]);
        let mut end = first + 1;
        while end < calls.len() && calls[end].pause_ms == 0 && calls[first].kind.is_some() && calls[end].kind.is_some()
        {
            bytes += expected_bytes(&expectations.expected[end]);
            if bytes > UNCHECKED_MAX {
                break;
            }
            end += 1;
        }
        end
    }

    /// Makes and times the calls of a stretch, then checks them. False after a hang or a crash.
    fn stretch(
        &mut self,
        stretch: std::ops::Range<usize>,
        prepared: &[Vec<PreparedOp<'_>>],
        workspaces: &mut Workspaces,
        passed: &mut Passed,
    ) -> bool {
        let expectations = self.pass.expectations;
        let calls = &expectations.calls()[stretch.clone()];
        let expected = &expectations.expected[stretch.clone()];
        let prepared = &prepared[stretch];
        std::thread::sleep(Duration::from_millis(calls[0].pause_ms));
        self.buffer.clear();
        let bytes = expected.iter().map(|one| expected_bytes(one)).sum();
        self.buffer.reserve(bytes);
        self.observed.clear();
        self.observed.reserve(prepared.iter().map(Vec::len).sum());
        let mut took = Vec::with_capacity(calls.len());
        let mut answers = Vec::new();
        let access = self.pass.access;
        let by_tools = access == Access::Tools;
        let subtree = workspaces.subtree.to_string_lossy().into_owned();
        if by_tools {
            answers.reserve(calls.iter().map(|call| call.ops.len()).sum());
        }
        let system_calls = self.buffer.system_calls;
        let limit = 2 * self.pass.call_timeout;
        let slowed = u64::from(self.pass.slowed_percent);

        let renewed_after = limit.as_nanos() as u64 / 4;
        let (mut renewed, mut ended) = (0_u64, 0_u64);
        let cpu_before = system::thread_cpu();
        for (at, (call, ops)) in calls.iter().zip(prepared).enumerate() {
            if at % CALLS_A_DEADLINE == 0 || ended.saturating_sub(renewed) > renewed_after {
                self.watchdog.enter(limit);
                renewed = ended;
            }
            let started = self.clock.now_ns();
            match access {
                Access::Tools => {
                    if let Some(tools) = workspaces.first.tools() {
                        answers.extend(call.ops.iter().map(|op| ask(op, call.lines, tools)));
                    }
                }
                Access::Client => {
                    if let Some(client) = workspaces.first.client() {
                        for op in &call.ops {
                            let done = perform_in_process(op, &subtree, client, self.buffer);
                            self.observed.push(done);
                        }
                    }
                }
                Access::Paths | Access::Program => {
                    for op in ops {
                        let observed = match op.op {
                            FileOp::SeenByOther { content, .. } => Ok(self.poll_until_seen(op, content)),
                            _ => perform(op, self.buffer),
                        };
                        self.observed.push(observed);
                    }
                }
            }
            ended = self.clock.now_ns();
            if slowed > 0 {
                let until = ended + ended.saturating_sub(started) * slowed / 100;
                while ended < until {
                    ended = self.clock.now_ns();
                }
            }
            let response = self.buffer.response_ns.take();
            took.push(response.unwrap_or(ended.saturating_sub(started)));
        }
        let cpu = system::thread_cpu().saturating_sub(cpu_before);
        self.watchdog.leave();
        let is_timed = calls[0].kind.is_some();
        if is_timed {
            passed.sample.cpu.client_ns += cpu.as_nanos() as u64;
        } else {
            self.buffer.system_calls = system_calls;
        }

        if by_tools {
            let ops = calls.iter().flat_map(|call| &call.ops);
            for (op, answers) in ops.zip(&answers) {
                self.observed.push(observe(op, answers, self.buffer));
            }
        }
        let mut first = 0;
        for ((call, expected), took) in calls.iter().zip(expected).zip(took) {
            let observed = first..first + call.ops.len();
            first = observed.end;
            if !self.check(call, expected, observed, took, workspaces, passed) {
                return false;
            }
        }
        true
    }

    /// Checks one call and records its service time, `took`, in nanoseconds. False after a hang or a crash.
    fn check(
        &mut self,
        call: &Call,
        expected: &[Expected],
        observed: std::ops::Range<usize>,
        took: u64,
        workspaces: &mut Workspaces,
        passed: &mut Passed,
    ) -> bool {
        for (op, observed) in call.ops.iter().zip(&self.observed[observed.clone()]) {
            if let (FileOp::AddLine { line, .. }, Ok(_)) = (op, observed) {
                self.added.insert(Bytes::clone(line));
            }
        }
        let observed = &self.observed[observed];
        let (mut outcome, mut reason) = self.outcome_of(call, expected, observed, took, workspaces);
        // Scores do not vary between rounds: compute them only in rounds that read files back.
        if outcome == Outcome::Ok
            && self.pass.reads_back
            && let Some(asked) = &call.asked
            && let Err(why) = self.score(asked, observed, &mut passed.sample.scores)
        {
            let what = call.ops.first().map(FileOp::describe).unwrap_or_default();
            (outcome, reason) = (Outcome::WrongData, format!("{what}: {why}"));
        }
        if let Some(kind) = call.kind {
            *passed.sample.outcomes.entry(outcome).or_default() += 1;
            passed.sample.waited_ns += took;
            if outcome == Outcome::Ok {
                passed.sample.makespan_ns += took;
                // An expected failure is not timed: failing takes another time than succeeding.
                if !expected.iter().any(|e| matches!(e, Expected::Errno(_))) {
                    let (times, total) = self.times.entry(kind).or_insert_with(|| (histogram(), 0));
                    times.saturating_record(took.max(1));
                    *total += took;
                }
                let returned = observed.iter().flatten().map(|one| self.returned_bytes(one));
                passed.sample.bytes_read += returned.sum::<u64>();
            }
        }
        if outcome != Outcome::Ok {
            passed.note(outcome, reason);
        }
        !matches!(outcome, Outcome::Hang | Outcome::Crash)
    }

    /// Scores the answer of a call and adds it to `scores`.
    fn score(
        &self,
        asked: &Asked,
        observed: &[Result<Observed, Errno>],
        scores: &mut BTreeMap<String, BTreeMap<String, Score>>,
    ) -> Result<(), String> {
        let answer = observed.iter().flatten().find_map(|one| match one {
            Observed::Bytes(place) => Some(&self.buffer.data[place.clone()]),
            _ => None,
        });
        let answer = String::from_utf8_lossy(answer.unwrap_or_default());
        for (method, found) in asked.score(&answer)? {
            let of_method = scores.entry(method.name()).or_default();
            for (name, (sum, of)) in found {
                // A comparison of runs goes by the kind of a score.
                let known = ScoreName::find(name).ok_or_else(|| format!("the score {name:?} has no kind"))?;
                let score = of_method.entry(known.name().to_owned()).or_default();
                score.sum += sum;
                score.of += of;
            }
        }
        Ok(())
    }

    fn returned_bytes(&self, observed: &Observed) -> u64 {
        match observed {
            Observed::Bytes(place) => place.len() as u64,
            Observed::Entries(place) => {
                let entries = self.buffer.entries[place.clone()].iter();
                entries.map(|entry| entry.content.len() as u64).sum()
            }
            _ => 0,
        }
    }

    /// Reads a file on the other host until it holds `content` or the call timeout is over.
    fn poll_until_seen(&mut self, op: &PreparedOp<'_>, content: &[u8]) -> Observed {
        let began = Instant::now();
        let mark = self.buffer.mark();
        loop {
            self.buffer.back_to(mark);
            // Retry after an error: the name may appear later.
            if let Ok(Observed::Bytes(place)) = perform(op, self.buffer)
                && self.buffer.data[place.clone()] == *content
            {
                return Observed::Bytes(place);
            }
            let is_over = began.elapsed() >= self.pass.call_timeout;
            if is_over || self.watchdog.killed().is_some() || self.pass.interrupt.is_set() {
                return Observed::NotSeen;
            }
            std::thread::sleep(POLL_INTERVAL);
        }
    }

    fn outcome_of(
        &self,
        call: &Call,
        expected: &[Expected],
        observed: &[Result<Observed, Errno>],
        took: u64,
        workspaces: &mut Workspaces,
    ) -> (Outcome, String) {
        let what = || call.ops.first().map(FileOp::describe).unwrap_or_default();
        let took = Duration::from_nanos(took);
        let limit = self.pass.call_timeout;
        for ((op, expected), observed) in call.ops.iter().zip(expected).zip(observed) {
            if let Err(mut reason) = verify(op, expected, observed, self.buffer) {
                if let Some(cut) = self.watchdog.killed() {
                    return (Outcome::Hang, format!("{}: {cut}", what()));
                }
                if let Some(exit_reason) = workspaces.exit_reason() {
                    return (Outcome::Crash, format!("{reason}; {exit_reason}"));
                }
                let outcome = match observed {
                    Err(_) => Outcome::Errno,
                    Ok(Observed::NotSeen) => {
                        reason = format!("{}: not within {} s", op.describe(), limit.as_secs_f64());
                        Outcome::Timeout
                    }
                    Ok(_) => Outcome::WrongData,
                };
                return (outcome, reason);
            }
        }
        if took > limit {
            if let Some(cut) = self.watchdog.killed() {
                return (Outcome::Hang, format!("{}: {cut}", what()));
            }
            let reason = format!("{}: took {:.1} s", what(), took.as_secs_f64());
            return (Outcome::Timeout, reason);
        }
        (Outcome::Ok, String::new())
    }
}
