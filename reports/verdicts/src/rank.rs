//! Ranks the arms of one run in each cell: paired by round, corrected for all pairs of the run.

use rundir::cache_state;
use schemars::JsonSchema;
use serde::Serialize;
use stats::{BoundedLogRatio, SeriesKey, baselines, holm, margin, median};

use crate::compare::ALPHA;
use figures::evidence::RunEvidence;
use figures::summary::FailedPasses;

/// The ranks of a run's arms.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct Ranking {
    /// The cells in which arms have ranks.
    pub cells: Vec<RankedCell>,
    /// The arms, with how often each was first, the most first.
    pub arms: Vec<RankedArm>,
    /// Pairs of arms that were compared in all cells together.
    pub pairs: usize,
    /// The median of the smallest ratios between two arms that would have been found.
    pub detectable: Option<f64>,
    /// Whether the machine was busy, so that an arm has a later rank only beyond what other processes can have changed.
    pub is_busy: bool,
}

/// One operation of a workload, and the ranks of its arms.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct RankedCell {
    /// The workload.
    pub workload: String,
    /// The cache state.
    pub state: String,
    /// The operation.
    pub metric: String,
    /// The arms, the fastest first.
    pub arms: Vec<ArmRank>,
    /// Arms with failed passes: the times of the others are no time of the arm.
    pub not_ranked: Vec<UnrankedArm>,
}

/// An arm with failed passes in a cell.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
pub struct UnrankedArm {
    /// The arm.
    pub arm: String,
    /// Failed passes.
    pub failed: u64,
    /// All passes.
    pub passes: u64,
}

/// An arm in a cell.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
pub struct ArmRank {
    /// The arm.
    pub arm: String,
    /// 1 plus the number of arms that are faster beyond the margin. Arms that cannot be told apart share a rank.
    pub rank: usize,
    /// Its typical time, in nanoseconds.
    pub typical_ns: f64,
    /// Its ratio to the fastest.
    pub ratio: f64,
}

/// An arm in all cells.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
pub struct RankedArm {
    /// The arm.
    pub arm: String,
    /// Cells in which no arm is faster beyond the margin.
    pub first: usize,
    /// The cells in which it has a rank.
    pub cells: usize,
    /// Passes that failed: they are in no rank.
    pub failed_passes: u64,
}

/// A pair of arms in a cell: the index of the cell, the arms, and the log ratio of the first to the second.
struct Pair {
    cell: usize,
    arms: (usize, usize),
    edge: f64,
    log_ratio: BoundedLogRatio,
}

/// Ranks the arms of a run. The second of two identical arms is left out.
///
/// # Errors
/// If the run measured no passes.
pub fn rank(run: &RunEvidence<'_>) -> Result<Ranking, String> {
    let plan = &run.run.plan;
    if let Some(why) = plan.measures_nothing() {
        return Err(format!("{}: {why}", run.run.dir.display()));
    }
    let (baseline, aa_arm) = baselines(plan);
    let identical = aa_arm.as_deref().map(|aa_arm| (baseline.as_str(), aa_arm));
    let names = plan.arms.iter().filter(|arm| arm.same_as.is_none());
    let names: Vec<&str> = names.map(|arm| arm.name.as_str()).collect();
    let mut keys: Vec<&SeriesKey> = run.table().0.keys().collect();
    // A cell that is measured in both placements counts once.
    let is_again = |key: &SeriesKey| {
        let free = SeriesKey::new(&key.workload, cache_state(&key.state), &key.metric);
        free != *key && run.table().0.contains_key(&free)
    };
    keys.retain(|key| key.is_main() && plan.compares(&key.workload, &key.state) && !is_again(key));
    keys.sort_by_key(|key| plan.workloads.iter().position(|workload| workload.name == key.workload));
    let (mut cells, mut pairs) = (Vec::new(), Vec::new());
    for key in keys {
        let arms = &run.table().0[key];
        let measured = names.iter().filter(|name| arms.contains_key(**name));
        let not_ranked = measured.filter_map(|name| {
            let found = failed_passes(run, key, name);
            (found.count() > 0).then(|| UnrankedArm {
                arm: (*name).to_owned(),
                failed: found.count(),
                passes: found.tried,
            })
        });
        let not_ranked: Vec<UnrankedArm> = not_ranked.collect();
        let is_ranked = |name: &&&str| not_ranked.iter().all(|failing| failing.arm != **name);
        // The time that a report of the run prints.
        let typical = |name: &str| {
            let cell = run.summary.cell(&key.workload, &key.state, &key.metric, name)?;
            Some(cell.typical_ns).filter(|ns| *ns > 0.0)
        };
        let compared = names.iter().filter(is_ranked).filter(|name| arms.contains_key(**name));
        let compared: Vec<(&str, f64)> = compared.filter_map(|name| Some((*name, typical(name)?))).collect();
        let Some(fastest) = compared.iter().map(|(_, typical_ns)| *typical_ns).reduce(f64::min) else {
            continue;
        };
        for (at, (one, _)) in compared.iter().enumerate() {
            for (other_at, (other, _)) in compared.iter().enumerate().skip(at + 1) {
                let ratios = run.table().ratios(key, one, &[*other], identical);
                let log_ratio = ratios.and_then(|ratios| BoundedLogRatio::of(&[(1.0, &ratios)]));
                pairs.extend(log_ratio.map(|log_ratio| Pair {
                    cell: cells.len(),
                    arms: (at, other_at),
                    edge: margin(plan, key, fastest).ratio.ln(),
                    log_ratio,
                }));
            }
        }
        let arms = compared.iter().map(|(arm, typical_ns)| ArmRank {
            arm: (*arm).to_owned(),
            rank: 1,
            typical_ns: *typical_ns,
            ratio: typical_ns / fastest,
        });
        cells.push(RankedCell {
            workload: key.workload.clone(),
            state: key.state.clone(),
            metric: key.metric.clone(),
            arms: arms.collect(),
            not_ranked,
        });
    }
    let p: Vec<(f64, f64)> = pairs.iter().map(|pair| pair.log_ratio.p_beyond(pair.edge)).collect();
    let least: Vec<f64> = p.iter().map(|(above, below)| above.min(*below)).collect();
    for ((pair, (above, below)), p) in pairs.iter().zip(&p).zip(holm(&least)) {
        if p > ALPHA {
            continue;
        }
        let slower = if above < below { pair.arms.0 } else { pair.arms.1 };
        cells[pair.cell].arms[slower].rank += 1;
    }
    for cell in &mut cells {
        let order = |one: &ArmRank, other: &ArmRank| {
            one.rank.cmp(&other.rank).then(one.typical_ns.total_cmp(&other.typical_ns))
        };
        cell.arms.sort_by(order);
    }
    let tests = pairs.len().max(1) as f64;
    let detectable = pairs.iter();
    let detectable = detectable.map(|pair| pair.log_ratio.detectable(pair.edge, ALPHA / tests).exp());
    Ok(Ranking {
        arms: arms(run, &names, &cells),
        cells,
        pairs: pairs.len(),
        detectable: median(&mut detectable.collect::<Vec<_>>()),
        is_busy: run.summary.health.is_busy,
    })
}

/// The passes of an arm in the workload and cache state of a cell.
fn failed_passes(run: &RunEvidence<'_>, key: &SeriesKey, arm: &str) -> FailedPasses {
    FailedPasses::of(run.passes(&key.workload, arm).filter(|pass| pass.state == key.state))
}

fn arms(run: &RunEvidence<'_>, names: &[&str], cells: &[RankedCell]) -> Vec<RankedArm> {
    let arms = names.iter().map(|name| {
        let all = cells.iter().flat_map(|cell| &cell.arms);
        let ranks: Vec<&ArmRank> = all.filter(|ranked| ranked.arm == *name).collect();
        let ending = run.summary.endings.iter().find(|ending| ending.arm == *name);
        let passes = ending.into_iter().flat_map(|ending| &ending.passes);
        let failed = passes.filter(|(outcome, _)| !matches!(outcome, rundir::Outcome::Ok | rundir::Outcome::Skipped));
        RankedArm {
            arm: (*name).to_owned(),
            first: ranks.iter().filter(|ranked| ranked.rank == 1).count(),
            cells: ranks.len(),
            failed_passes: failed.map(|(_, count)| count).sum(),
        }
    });
    let mut arms: Vec<RankedArm> = arms.collect();
    // Stable: arms that were first equally often stay in the plan's order.
    arms.sort_by_key(|arm| std::cmp::Reverse(arm.first));
    arms
}

#[cfg(test)]
mod tests {
    use super::*;
    use figures::summary::summarise;
    use figures::testing;

    fn ranking(run: &rundir::Run) -> Ranking {
        let summary = summarise(run).unwrap();
        rank(&RunEvidence::new(run, &summary, &testing::contexts())).unwrap()
    }

    /// Whether no arm has a later rank than another.
    fn is_tied(found: &Ranking) -> bool {
        let mut arms = found.cells.iter().flat_map(|cell| &cell.arms);
        arms.all(|ranked| ranked.rank == 1)
    }

    #[test]
    fn a_slower_arm_has_a_later_rank_and_an_equal_one_the_same() {
        let run = testing::run();
        let found = ranking(&run);
        assert_eq!((found.cells.len(), found.pairs), (2, 2), "the identical arm is left out");
        for cell in &found.cells {
            let ranks = cell.arms.iter().map(|ranked| (ranked.arm.as_str(), ranked.rank));
            assert!(ranks.eq([("direct", 1), ("sqlite", 2)]), "{cell:?}");
            assert!((1.9..2.1).contains(&cell.arms[1].ratio));
        }
        assert_eq!((found.arms[0].arm.as_str(), found.arms[0].first), ("direct", 2));
        assert!((1.05..1.3).contains(&found.detectable.unwrap()), "{found:?}");
        let mut equal = testing::run();
        testing::scale(&mut equal, "sqlite", 0.5);
        let found = ranking(&equal);
        assert!(is_tied(&found));
    }

    #[test]
    fn an_arm_with_failed_passes_in_a_cell_has_no_rank_there() {
        let mut run = testing::run();
        testing::scale(&mut run, "sqlite", 0.1);
        assert_eq!(ranking(&run).arms[0].first, 2, "the faster arm");
        let passes = testing::passes(&mut run, "micro/read", "sqlite").enumerate();
        passes.filter(|(at, _)| at % 2 == 1).for_each(|(_, pass)| pass.outcome = rundir::Outcome::Errno);
        let found = ranking(&run);
        let cell = found.cells.iter().find(|cell| cell.workload == "micro/read").unwrap();
        let ranked: Vec<&str> = cell.arms.iter().map(|ranked| ranked.arm.as_str()).collect();
        assert_eq!(ranked, ["direct"]);
        assert_eq!(cell.not_ranked, [UnrankedArm { arm: "sqlite".to_owned(), failed: 14, passes: 28 }]);
        let of_sqlite = found.arms.iter().find(|arm| arm.arm == "sqlite").unwrap();
        assert_eq!((of_sqlite.first, of_sqlite.cells), (1, 1));
    }

    #[test]
    fn a_busy_run_ranks_only_what_is_apart_beyond_the_disturbance() {
        // In the scripted run, half of a pass of `direct` is waiting, and a sixth of one of `sqlite`.
        let mut run = testing::run();
        testing::make_busy(&mut run);
        let found = ranking(&run);
        assert!(found.is_busy && !is_tied(&found), "twice as long");
        testing::scale(&mut run, "sqlite", 0.6);
        assert!(is_tied(&ranking(&run)), "1.2 times as long");
    }
}
