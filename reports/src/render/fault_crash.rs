//! The crash points of a fault run, as a table.

use super::part::Part;
use figures::text::{columns, count};
use rundir::Run;
use rundir::faults::{CrashPoints, Status};

/// The table of crash points, with a note on what a clean result proves; empty if none were run.
pub(super) fn crash_points(run: &Run) -> Vec<Part> {
    if run.crash_points.is_empty() {
        return Vec::new();
    }
    let head = columns(
        "backend | what was lost | points | a request was with the daemon | \
         a change was begun and not acknowledged | a change was newly acknowledged | \
         broken points | acknowledged changes | looks at a record | lost | torn | stale | \
         phantom | mixtures | unreadable | not judged | verdict | \
         back after (median, longest) | how",
    );
    let said = "A crash point passes if no record is lost, torn, stale or phantom. If 0 of n independent points fail, the share that fails is at most 1 − 0.05^(1/n), with 95 % confidence. n counts points, not records, because all records of a point are in one store. A loss counts at the first point at which it is found. The seed decides delays and changes; the state that a kill hits depends on scheduling. \"–\": not looked at.";
    let mut parts = vec![Part::Text(said.to_owned()), Part::Table(head, run.crash_points.iter().map(row).collect())];
    let named = run.crash_points.iter().flat_map(|points| {
        let (backend, loss) = (&points.backend, &points.loss);
        let died = (points.died_by_itself > 0).then(|| {
            let died = points.died_by_itself;
            format!("{backend}: the daemon had ended by itself before {died} of the kills")
        });
        let examples = points.audit.examples.iter();
        let examples = examples.map(move |example| format!("{backend}, {loss}: {example}"));
        examples.chain(died)
    });
    let named: Vec<String> = named.collect();
    if !named.is_empty() {
        parts.push(Part::List(named));
    }
    parts
}

fn row(points: &CrashPoints) -> Vec<String> {
    let none = || "–".to_owned();
    if points.points + points.unjudged == 0 {
        let mut row = vec![points.backend.clone(), points.loss.clone()];
        row.extend((0..14).map(|_| none()));
        row.push(verdict(points).to_owned());
        row.extend([none(), points.reason.clone().unwrap_or_default()]);
        return row;
    }
    let audit = &points.audit;
    let acknowledged: u64 = audit.acknowledged.values().sum();
    let maybe = |value: Option<u64>| value.map_or_else(none, count);
    let how = match &points.reason {
        Some(reason) => format!("ENDED EARLY: {reason}. {}", points.how),
        None => points.how.clone(),
    };
    vec![
        points.backend.clone(),
        points.loss.clone(),
        count(points.points),
        maybe(points.in_flight),
        maybe(points.unacknowledged),
        maybe(points.newly_acknowledged),
        maybe(points.broken),
        maybe(Some(acknowledged).filter(|number| *number > 0)),
        count(audit.looks()),
        count(audit.lost),
        count(audit.torn),
        count(audit.stale),
        count(audit.phantom),
        maybe(points.mixtures),
        count(audit.unreadable),
        count(points.unjudged),
        verdict(points).to_owned(),
        match points.recovery_ms {
            (median, longest) if longest > 0.0 => format!("{median:.0} ms, {longest:.0} ms"),
            _ => none(),
        },
        how,
    ]
}

fn verdict(points: &CrashPoints) -> &'static str {
    match points.status {
        Status::Ran => points.audit.verdict.name(),
        Status::Unfit => "does not fit",
        Status::Skipped => "not looked at",
        Status::Infra => "not measured",
    }
}
