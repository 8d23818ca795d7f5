//! Which part of a plan's cells a run measures: by option, or by the variables of a scheduler.

use anyhow::bail;
use rundir::{MOST_SHARDS, Shard};

/// Parses `I/N`.
pub fn parse(text: &str) -> Result<Shard, String> {
    let parts = text.split_once('/');
    let parts = parts.and_then(|(index, of)| Some((index.parse().ok()?, of.parse().ok()?)));
    match parts {
        Some((index, of)) => shard(index, of),
        None => Err("must be I/N, as in 0/3".to_owned()),
    }
}

fn shard(index: u32, of: u32) -> Result<Shard, String> {
    match of {
        0 => Err("there are no shards of 0 (give at least 1)".to_owned()),
        of if of > MOST_SHARDS => Err(format!("{of} shards are too many (at most {MOST_SHARDS})")),
        of if index >= of => Err(format!("there is no shard {index} of {of}: they are numbered from 0 to {}", of - 1)),
        of => Ok(Shard { index, of }),
    }
}

/// The shard by option, else by the variables of Kubernetes or Slurm. All shards need one seed.
pub fn chosen(option: Option<Shard>, seed: Option<u64>) -> anyhow::Result<Option<Shard>> {
    let shard = match option {
        Some(shard) => Some(shard),
        None => by_variables(inputs::variable)?,
    };
    if let (Some(shard), None) = (shard, seed) {
        bail!("shard {shard} needs the seed of the other shards\n  fix: give all of them the same --seed");
    }
    Ok(shard)
}

/// The shard that the variables of a scheduler select; `None` outside of one.
fn by_variables(variable: impl Fn(&str) -> Option<String>) -> anyhow::Result<Option<Shard>> {
    let number = |name: &str| match variable(name) {
        None => Ok(None),
        Some(text) => match text.parse::<u32>() {
            Ok(number) => Ok(Some(number)),
            Err(_) => bail!("{name} is {text:?}, which is not a number\n  fix: give --shard I/N"),
        },
    };
    let kubernetes = number("JOB_COMPLETION_INDEX")?;
    let slurm = number("SLURM_ARRAY_TASK_ID")?;
    let (names, index, of) = match (kubernetes, slurm) {
        (None, None) => return Ok(None),
        (Some(_), Some(_)) => {
            bail!("both JOB_COMPLETION_INDEX and SLURM_ARRAY_TASK_ID are set\n  fix: give --shard I/N")
        }
        (Some(index), None) => {
            let Some(of) = number("JOB_COMPLETIONS")? else {
                bail!(
                    "JOB_COMPLETION_INDEX is set, but not JOB_COMPLETIONS, the number of shards\n  fix: set it to the job's `completions`, or give --shard I/N; --shard 0/1 has all cells"
                );
            };
            (["JOB_COMPLETION_INDEX", "JOB_COMPLETIONS"], index, of)
        }
        (None, Some(id)) => {
            let Some(of) = number("SLURM_ARRAY_TASK_COUNT")? else {
                bail!(
                    "SLURM_ARRAY_TASK_ID is set, but not SLURM_ARRAY_TASK_COUNT\n  fix: give --shard I/N; --shard 0/1 has all cells"
                );
            };
            // An array may begin at any number, and have steps: --array=1-9:2.
            let first = number("SLURM_ARRAY_TASK_MIN")?.unwrap_or(0);
            let step = number("SLURM_ARRAY_TASK_STEP")?.unwrap_or(1).max(1);
            let Some(after) = id.checked_sub(first).filter(|after| after.is_multiple_of(step)) else {
                bail!(
                    "SLURM_ARRAY_TASK_ID {id} is not in an array from {first} in steps of {step}\n  fix: give --shard I/N"
                );
            };
            (["SLURM_ARRAY_TASK_ID", "SLURM_ARRAY_TASK_COUNT"], after / step, of)
        }
    };
    match shard(index, of) {
        Ok(shard) => {
            eprintln!("shard {shard}, by {} and {}", names[0], names[1]);
            Ok(Some(shard))
        }
        Err(problem) => bail!("{} and {}: {problem}\n  fix: give --shard I/N", names[0], names[1]),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_shard_that_is_not_one_of_them_is_refused() {
        assert_eq!(parse("0/1"), Ok(Shard { index: 0, of: 1 }));
        assert_eq!(parse("2/3"), Ok(Shard { index: 2, of: 3 }));
        for (text, expected) in [
            ("3/3", "there is no shard 3 of 3: they are numbered from 0 to 2"),
            ("0/0", "no shards of 0"),
            ("0/1001", "too many"),
            ("1", "I/N"),
            ("-1/3", "I/N"),
            ("1/3/5", "I/N"),
            ("a/b", "I/N"),
            ("", "I/N"),
        ] {
            let refused = parse(text).unwrap_err();
            assert!(refused.contains(expected), "{text}: {refused}");
        }
    }

    fn by(variables: &[(&str, &str)]) -> Result<Option<String>, String> {
        let found = by_variables(|name| {
            let mut variables = variables.iter();
            let found = variables.find(|(own, _)| *own == name);
            found.map(|(_, value)| (*value).to_owned())
        });
        match found {
            Ok(shard) => Ok(shard.map(|shard| shard.to_string())),
            Err(error) => Err(error.to_string()),
        }
    }

    #[test]
    fn a_scheduler_selects_the_shard_by_its_variables() {
        let some = |text: &str| Ok(Some(text.to_owned()));
        assert_eq!(by(&[]), Ok(None));
        let job = [("JOB_COMPLETION_INDEX", "2"), ("JOB_COMPLETIONS", "3")];
        assert_eq!(by(&job), some("2/3"));
        let array = |id, count, min, step| {
            by(&[
                ("SLURM_ARRAY_TASK_ID", id),
                ("SLURM_ARRAY_TASK_COUNT", count),
                ("SLURM_ARRAY_TASK_MIN", min),
                ("SLURM_ARRAY_TASK_STEP", step),
            ])
        };
        assert_eq!(array("0", "4", "0", "1"), some("0/4"));
        assert_eq!(array("4", "4", "1", "1"), some("3/4"));
        assert_eq!(array("5", "3", "1", "2"), some("2/3"));
        for wrong in [
            array("6", "3", "1", "2"),
            array("7", "3", "1", "1"),
            array("0", "3", "1", "1"),
            by(&job[..1]),
            by(&[("SLURM_ARRAY_TASK_ID", "1")]),
            by(&[job[0], ("SLURM_ARRAY_TASK_ID", "1")]),
            by(&[("JOB_COMPLETION_INDEX", "3"), job[1]]),
            by(&[("JOB_COMPLETION_INDEX", "x"), job[1]]),
            by(&[job[0], ("JOB_COMPLETIONS", "0")]),
        ] {
            let refused = wrong.unwrap_err();
            assert!(refused.contains("--shard I/N"), "{refused}");
        }
    }

    #[test]
    fn shards_need_one_seed() {
        let shard = parse("0/2").unwrap();
        let refused = chosen(Some(shard), None).unwrap_err().to_string();
        assert!(refused.contains("the same --seed"), "{refused}");
        assert_eq!(chosen(Some(shard), Some(7)).unwrap(), Some(shard));
    }
}
