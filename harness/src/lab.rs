//! Where blocks are measured: on this machine, or in a test's script.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use backends::backend::Site;
use reports::run::{Plan, SCHEMA_VERSION, Sample};
use workloads::definition::Workload;

use crate::block::{Measured, Task};
use crate::clock::Monotonic;
use crate::interrupt::Interrupt;
use crate::plan::{Block, LiveArm};
use crate::supervise::{Lost, supervise};

/// How long a daemon may take to start or stop.
const DAEMON_PATIENCE: Duration = Duration::from_secs(20);

/// The placement in which client and daemon share a processor, as plans call it.
pub const SHARED_CPU: &str = "shared-cpu";

/// Measures blocks.
pub trait Lab {
    /// Measures a block; `None` if it was interrupted, so that there is nothing whole to record.
    fn measure(&mut self, plan: &Plan, block: &Block) -> Option<Sample>;
}

/// This machine.
pub struct Machine {
    /// The arms, in the plan's order.
    pub arms: Vec<LiveArm>,
    /// The workloads, in the plan's order.
    pub workloads: Vec<Arc<Workload>>,
    /// Where workspaces live.
    pub scratch: PathBuf,
    /// The ctxbench binary.
    pub program: PathBuf,
    /// Ends the run.
    pub interrupt: Interrupt,
    /// The processor that client and daemon share, if they do.
    pub cpu: Option<usize>,
    /// When the run started.
    pub started: Instant,
}

impl Lab for Machine {
    fn measure(&mut self, plan: &Plan, block: &Block) -> Option<Sample> {
        use reports::run::Outcome;
        let began = Instant::now();
        let arm = &self.arms[block.arm];
        let workload = &self.workloads[block.workload];
        let state_name = &plan.workloads[block.workload].states[block.state];
        let state = workload
            .states
            .iter()
            .find(|state| state.name() == state_name)?;
        let dir = self.scratch.join(format!("b{}", block.order));
        let measured = match std::fs::create_dir(&dir) {
            Err(error) => {
                let reason = format!("creating {}: {error}", dir.display());
                Ok(failed(Outcome::Infra, reason))
            }
            Ok(()) => {
                let task = Task {
                    backend: Arc::clone(&arm.backend),
                    workload: Arc::clone(workload),
                    state: *state,
                    site: Site {
                        dir: dir.clone(),
                        program: self.program.clone(),
                        patience: DAEMON_PATIENCE,
                        cpu: (plan.settings.placement == SHARED_CPU)
                            .then_some(self.cpu)
                            .flatten(),
                        allow_other: false,
                    },
                    call_timeout: Duration::from_millis(plan.settings.call_timeout_ms),
                    interrupt: self.interrupt.clone(),
                };
                supervise(&self.interrupt, move |pulse| {
                    task.run(pulse, &Monotonic::start())
                })
            }
        };
        let measured = match measured {
            Ok(measured) => measured,
            Err(Lost::Stuck) => failed(
                Outcome::Hang,
                "the call did not come back although its connection was cut; its thread is left behind",
            ),
            Err(Lost::Panicked) => failed(Outcome::Infra, "the replay panicked; see the log"),
        };
        if let Err(error) = std::fs::remove_dir_all(&dir) {
            tracing::warn!("removing {}: {error}", dir.display());
        }
        if measured.interrupted || self.interrupt.is_set() {
            return None;
        }
        let (outcome, reason) = match measured.verdict {
            Some((outcome, reason)) => (outcome, Some(reason)),
            None => (Outcome::Ok, None),
        };
        Some(Sample {
            v: SCHEMA_VERSION,
            round: block.round,
            order: block.order,
            arm: arm.name.clone(),
            backend: arm.backend.describe().name,
            workload: workload.name.clone(),
            state: state_name.clone(),
            outcome,
            reason,
            outcomes: measured.outcomes,
            calls: measured.calls,
            makespan_ns: measured.makespan_ns,
            waited_ns: measured.waited_ns,
            bytes_read: measured.bytes_read,
            disk_read_bytes: measured.disk_read_bytes,
            ready_ns: measured.ready.as_nanos() as u64,
            daemon: measured.daemon,
            cpu: measured.cpu,
            memory: measured.memory,
            pressure: measured.pressure,
            settled: measured.settled,
            started_ms: began.duration_since(self.started).as_millis() as u64,
            took_ms: began.elapsed().as_millis() as u64,
        })
    }
}

fn failed(outcome: reports::run::Outcome, reason: impl ToString) -> Measured {
    Measured {
        verdict: Some((outcome, reason.to_string())),
        ..Measured::default()
    }
}
