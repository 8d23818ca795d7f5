//! The script of concurrent client processes.

use super::{check_range, path};
use crate::path::WorkspacePath;
use crate::script::clients::Clients;
use crate::script::{CallKind, FileOp, Script};

impl Clients {
    pub(crate) fn script(&self) -> Result<Script, String> {
        for (field, value, most) in [
            ("processes", self.processes, 64),
            ("files", self.files, 1000),
            ("bytes", self.bytes, 1 << 20),
            ("calls", self.calls, 1_000_000),
        ] {
            check_range(&format!("clients.{field}"), &value, 1..=most)?;
        }
        if let Some(every_us) = self.every_us {
            check_range("clients.every_us", &every_us, 1..=1_000_000)?;
        }
        if self.writes > 100 {
            return Err("field `clients.writes`: must be at most 100".to_owned());
        }
        let dir = path("clients")?;
        let content = self.content(0);
        let files = self.names(&dir)?.into_iter();
        let mut script = Script::new(files.map(|path| (path, content.clone())).collect());
        script.call(CallKind::Concurrent, vec![FileOp::Together { dir, clients: self.clone() }]);
        Ok(script)
    }

    fn names(&self, dir: &WorkspacePath) -> Result<Vec<WorkspacePath>, String> {
        let all = (0..self.processes)
            .flat_map(|process| (0..self.files).map(move |file| format!("{dir}/{}", Self::name(process, file))));
        all.map(path).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::{ExpectedResult, ReferenceModel};

    fn clients() -> Clients {
        let text = "processes = 3\nfiles = 4\nbytes = 10\ncalls = 50\nwrites = 20\nseed = 1";
        toml::from_str(text).unwrap()
    }

    #[test]
    fn the_model_keeps_the_last_write_of_every_client() {
        let script = clients().script().unwrap();
        assert_eq!(script.files.len(), 12);
        let mut model = ReferenceModel::of(&script);
        assert_eq!(model.apply(&script.calls[0].ops[0]), ExpectedResult::Done);
        for process in 0..3 {
            for file in 0..4 {
                let calls = clients().calls(process).filter(|call| call.file == file);
                let last = calls.filter_map(|call| call.write).last().unwrap_or(0);
                let path = WorkspacePath::new(format!("clients/{process}/{file}")).unwrap();
                assert_eq!(model.file(&path), Some(&clients().content(last)));
            }
        }
    }

    #[test]
    fn the_scheduled_calls_of_all_processes_are_evenly_spaced() {
        assert_eq!(clients().due(0, 1), None);
        let open = Clients { every_us: Some(300), ..clients() };
        let mut due: Vec<u128> = (0..3)
            .flat_map(|process| (0..4).map(move |call| (process, call)))
            .filter_map(|(process, call)| Some(open.due(process, call)?.as_micros()))
            .collect();
        due.sort_unstable();
        assert_eq!(due, (0..12).map(|at| at * 100).collect::<Vec<u128>>());
    }

    #[test]
    fn a_client_repeats_its_calls_and_differs_from_others() {
        let calls = |process| clients().calls(process).collect::<Vec<_>>();
        assert_eq!(calls(1), calls(1));
        assert_ne!(calls(1), calls(2));
        let writes = calls(0).iter().filter(|call| call.write.is_some()).count();
        assert!((1..25).contains(&writes), "{writes} of 50");
    }
}
