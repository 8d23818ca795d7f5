//! Measures whether the machine is quiet: compares stalls, stolen time and runnable tasks with limits.

use std::collections::BTreeMap;
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::time::{Duration, Instant};

use rundir::{Limits, Load};

/// Shortest window for processor time, which the kernel counts in hundredths of a second.
const WINDOW: Duration = Duration::from_millis(300);

/// How often, a millisecond apart, a round waits for other runnable tasks. Kernel threads finish the work of the
/// previous pass in that time.
const WAITS: u32 = 5;

/// Open files of the kernel's statistics and the current window.
pub struct Gauge {
    limits: Limits,
    pressure: [Option<File>; 3],
    stat: Option<File>,
    loadavg: Option<File>,
    window: Window,
    /// The other processes when the gauge was opened.
    foreign: Vec<Process>,
}

/// The readings at the start of a window, a sequence of rounds.
#[derive(Clone, Copy)]
struct Window {
    began: Instant,
    ticks: Ticks,
    foreign_ticks: u64,
}

/// The readings at the start of a pass.
pub struct Reading {
    at: Instant,
    stalled_us: [u64; 3],
}

/// Processor time of the whole machine, in hundredths of a second.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Ticks {
    /// All of it, idle time too.
    pub all: u64,
    /// Time that the hypervisor gave to other machines.
    pub stolen: u64,
}

impl Ticks {
    /// The share, 0 to 1, that was stolen since `before`.
    pub fn stolen_since(&self, before: &Self) -> f64 {
        let all = self.all.saturating_sub(before.all);
        self.stolen.saturating_sub(before.stolen) as f64 / all.max(1) as f64
    }
}

impl Gauge {
    /// Opens the files. A file that this kernel lacks imposes no limit.
    pub fn open(limits: Limits) -> Self {
        let open = |path: &str| File::open(path).ok();
        let mut gauge = Self {
            limits,
            pressure: ["cpu", "io", "memory"].map(|what| open(&format!("/proc/pressure/{what}"))),
            stat: open("/proc/stat"),
            loadavg: open("/proc/loadavg"),
            window: Window { began: Instant::now(), ticks: Ticks::default(), foreign_ticks: 0 },
            foreign: foreign(),
        };
        gauge.open_window();
        gauge
    }

    fn open_window(&mut self) {
        self.window = Window { began: Instant::now(), ticks: self.ticks(), foreign_ticks: foreign_ticks() };
    }

    /// Time in which a task waited for a processor, for I/O, and for memory, in microseconds since boot.
    pub fn stalled_us(&self) -> [u64; 3] {
        [0, 1, 2].map(|at| {
            let text = self.pressure[at].as_ref().and_then(head);
            text.and_then(|text| stall_total(&text)).unwrap_or(0)
        })
    }

    /// Processor time since boot.
    pub fn ticks(&self) -> Ticks {
        let text = self.stat.as_ref().and_then(head);
        text.and_then(|text| ticks(&text)).unwrap_or_default()
    }

    /// The processor time of other processes since the gauge was opened, in seconds, by name.
    pub fn neighbours(&self) -> BTreeMap<String, f64> {
        seconds_since(&self.foreign, &foreign())
    }

    /// Why other processes want the processors, read before a round, while no process of ours runs.
    pub fn before_round(&self) -> Option<String> {
        let mut others = 0;
        for wait in 0..=WAITS {
            let text = self.loadavg.as_ref().and_then(head);
            let running = text.and_then(|text| runnable(&text)).unwrap_or(1);
            // The calling thread is one of them.
            others = running.saturating_sub(1);
            if others <= self.limits.runnable {
                return None;
            }
            if wait < WAITS {
                std::thread::sleep(Duration::from_millis(1));
            }
        }
        Some(format!("other tasks ready to run: {others}"))
    }

    /// Closes the window if it is long enough or the cell ends: `Err` if other processes or machines used the
    /// processors in it. `None` while the window stays open. Called between rounds.
    pub fn window(&mut self, cell_ends: bool) -> Option<Result<(), String>> {
        let took = self.window.began.elapsed();
        if took < WINDOW && !cell_ends {
            return None;
        }
        let (before, now, foreign) = (self.window, self.ticks(), foreign_ticks());
        self.open_window();
        if took < WINDOW / 3 {
            // Too short for a clock of hundredths of a second.
            return Some(Ok(()));
        }
        let stolen = now.stolen_since(&before.ticks);
        if stolen > self.limits.steal {
            return Some(Err(format!("stolen processor time in this window: {:.0} %", stolen * 100.0)));
        }
        let foreign = foreign.saturating_sub(before.foreign_ticks) as f64 / 100.0;
        let foreign = foreign / took.as_secs_f64();
        if foreign > self.limits.foreign_cpu {
            return Some(Err(format!("other processes used {foreign:.2} of one processor in this window")));
        }
        Some(Ok(()))
    }

    /// Reads the statistics at the start of a pass.
    pub fn begin(&self) -> Reading {
        Reading { at: Instant::now(), stalled_us: self.stalled_us() }
    }

    /// Computes the load of a pass at its end. Limits on waits for the disk or a processor apply only if the pass cannot have
    /// caused them: `is_alone` says that it has no daemon, `waits_for_disk` that its workload uses the disk.
    pub fn end(&self, began: &Reading, is_alone: bool, waits_for_disk: bool) -> Load {
        let took = began.at.elapsed().as_micros().max(1) as f64;
        let now = self.stalled_us();
        let share = |at: usize| now[at].saturating_sub(began.stalled_us[at]) as f64 / took;
        let (cpu, io, memory) = (share(0), share(1), share(2));
        let over = |what: &str, share: f64, limit: f64| {
            (share > limit).then(|| format!("tasks waited for {what} in {:.0} % of this pass", share * 100.0))
        };
        let limits = &self.limits;
        let busy = over("a processor", cpu, limits.cpu)
            .filter(|_| is_alone && !waits_for_disk)
            .or_else(|| over("memory", memory, limits.memory))
            .or_else(|| over("the disk", io, limits.io).filter(|_| is_alone && !waits_for_disk));
        Load { busy, cpu: rounded(cpu), io: rounded(io), memory: rounded(memory) }
    }
}

/// Thousandths are precise enough and short in JSON.
fn rounded(share: f64) -> f32 {
    (share * 1000.0).round() as f32 / 1000.0
}

/// The first bytes of a `/proc` file.
fn head(file: &File) -> Option<String> {
    let mut bytes = [0; 1024];
    let length = file.read_at(&mut bytes, 0).ok()?;
    Some(String::from_utf8_lossy(&bytes[..length]).into_owned())
}

fn stall_total(text: &str) -> Option<u64> {
    let some = text.lines().find(|line| line.starts_with("some"))?;
    some.split("total=").nth(1)?.trim().parse().ok()
}

fn ticks(text: &str) -> Option<Ticks> {
    let line = text.lines().next()?.strip_prefix("cpu ")?;
    let fields: Vec<u64> = line.split_whitespace().map_while(|field| field.parse().ok()).collect();
    // User time includes guests' time, from the ninth field on.
    let stolen = fields.get(7).copied().unwrap_or(0);
    Some(Ticks { all: fields.iter().take(8).sum(), stolen })
}

/// Processor time of foreign processes in hundredths of a second.
fn foreign_ticks() -> u64 {
    foreign().iter().map(|process| process.ticks).sum()
}

/// The foreign processes. This process and its descendants are none, nor are kernel threads, which work for it:
/// write-back, journals, loop devices.
fn foreign() -> Vec<Process> {
    let Ok(entries) = std::fs::read_dir("/proc") else {
        return Vec::new();
    };
    let stats = entries.flatten().filter_map(|entry| {
        let name = entry.file_name();
        let pid: u32 = name.to_str()?.parse().ok()?;
        let text = std::fs::read_to_string(entry.path().join("stat")).ok()?;
        process(pid, &text)
    });
    foreign_among(stats.collect(), std::process::id())
}

/// A process, its parent, and the processor time of it and its ended children, in hundredths of a second.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Process {
    pid: u32,
    name: String,
    parent: u32,
    ticks: u64,
}

fn process(pid: u32, stat: &str) -> Option<Process> {
    // pid (name) state parent …; the name may hold any character.
    let (head, rest) = stat.rsplit_once(") ")?;
    let fields: Vec<&str> = rest.split(' ').collect();
    let times = fields.get(11..15)?.iter();
    let ticks: Option<u64> = times.map(|field| field.parse::<u64>().ok()).sum();
    Some(Process { pid, name: head.split_once('(')?.1.to_owned(), parent: fields.get(1)?.parse().ok()?, ticks: ticks? })
}

/// The parent of the kernel's own threads.
const KTHREADD: u32 = 2;

fn foreign_among(mut all: Vec<Process>, harness: u32) -> Vec<Process> {
    let parents: BTreeMap<u32, u32> = all.iter().map(|one| (one.pid, one.parent)).collect();
    let is_ours = |mut pid: u32| {
        // Ends a cycle: process ids can be reused during the scan.
        for _ in 0..64 {
            if pid == harness || pid == KTHREADD {
                return true;
            }
            match parents.get(&pid) {
                Some(above) if *above != pid => pid = *above,
                _ => return false,
            }
        }
        false
    };
    // Ancestors of the harness count as foreign, too.
    all.retain(|one| !is_ours(one.pid));
    all
}

/// The least processor time that makes a process worth naming, in hundredths of a second.
const WORTH_NAMING: u64 = 10;

/// The processor time that processes used from `before` to `now`, in seconds, by name.
fn seconds_since(before: &[Process], now: &[Process]) -> BTreeMap<String, f64> {
    let then: BTreeMap<u32, &Process> = before.iter().map(|one| (one.pid, one)).collect();
    let mut ticks: BTreeMap<&str, u64> = BTreeMap::new();
    for process in now {
        // A process id can be given to another process.
        let same = then.get(&process.pid);
        let then = same.filter(|then| then.name == process.name);
        let used = process.ticks.saturating_sub(then.map_or(0, |then| then.ticks));
        *ticks.entry(&process.name).or_default() += used;
    }
    let named = ticks.into_iter().filter(|(_, used)| *used >= WORTH_NAMING);
    named.map(|(name, used)| (name.to_owned(), used as f64 / 100.0)).collect()
}

fn runnable(text: &str) -> Option<u32> {
    let tasks = text.split(' ').nth(3)?;
    tasks.split('/').next()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_gauge_parses_the_kernels_statistics() {
        let psi =
            "some avg10=0.00 avg60=0.11 avg300=0.05 total=123456\nfull avg10=0.00 avg60=0.00 avg300=0.00 total=0\n";
        assert_eq!(stall_total(psi), Some(123_456));
        let stat = "cpu  10 1 20 300 5 0 4 60 7 0\ncpu0 1 2 3\n";
        let found = ticks(stat).unwrap();
        assert_eq!(found, Ticks { all: 400, stolen: 60 });
        assert_eq!(runnable("0.23 0.10 0.03 2/79 2364\n"), Some(2));
        let later = Ticks { all: 600, stolen: 110 };
        assert_eq!(later.stolen_since(&found), 0.25);
    }

    #[test]
    fn foreign_processor_time_excludes_the_harness_and_kernel_threads() {
        let stat = "41 (a (b) c) S 7 41 41 0 -1 4194304 1 0 0 0 100 20 3 4 20 0 1 0 1 1 1";
        let found = process(41, stat).unwrap();
        assert_eq!((found.parent, found.ticks), (7, 127));
        assert_eq!(found.name, "a (b) c");
        let one = |pid, parent, ticks| Process { pid, name: format!("p{pid}"), parent, ticks };
        let all = [
            one(1, 0, 10),
            one(2, 0, 1000),
            one(9, 2, 1000),
            one(50, 1, 5),
            one(60, 50, 1000),
            one(61, 60, 1000),
            one(70, 50, 7),
        ];
        let foreign = foreign_among(all.to_vec(), 60);
        let ticks = foreign.iter().map(|process| process.ticks);
        assert_eq!(ticks.sum::<u64>(), 10 + 5 + 7);
    }

    #[test]
    fn neighbours_are_named_with_the_time_that_they_used_since() {
        let one = |pid, name: &str, ticks| Process { pid, name: name.to_owned(), parent: 1, ticks };
        let before = [one(5, "rustc", 1000), one(6, "sshd", 70), one(7, "old", 900)];
        let now = [one(5, "rustc", 1150), one(6, "sshd", 71), one(7, "new", 20), one(8, "rustc", 50)];
        let found = seconds_since(&before, &now);
        let expected = [("new".to_owned(), 0.2), ("rustc".to_owned(), 2.0)];
        assert_eq!(found, BTreeMap::from(expected));
    }

    #[test]
    fn a_pass_over_a_limit_names_the_limit() {
        let strict = Limits { cpu: -1.0, ..Limits::default() };
        let gauge = Gauge::open(strict);
        let load = gauge.end(&gauge.begin(), true, false);
        assert!(load.busy.unwrap().contains("waited for a processor"));
        let load = gauge.end(&gauge.begin(), false, true);
        assert!(load.busy.is_none(), "a pass may wait for its own daemon");
        let disk = Limits { cpu: 1e9, memory: 1e9, io: -1.0, ..Limits::default() };
        let gauge = Gauge::open(disk);
        assert!(gauge.end(&gauge.begin(), true, true).busy.is_none());
        assert!(gauge.end(&gauge.begin(), true, false).busy.is_some());
    }
}
