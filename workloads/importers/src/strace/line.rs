//! The syntax of a line of `strace`: process, call, arguments, strings and descriptors.

/// The result of a call that fails with ENOENT.
pub(super) const NOT_FOUND: i64 = -2;

/// A system call: its name, arguments, and result.
pub(super) struct Call<'a> {
    pub(super) name: &'a str,
    pub(super) args: Vec<&'a str>,
    pub(super) result: i64,
    /// The path of a descriptor that it returns, in a log of `strace -y`.
    pub(super) shown: Option<String>,
}

impl Call<'_> {
    /// The number in an argument, such as a descriptor.
    pub(super) fn number(&self, at: usize) -> Option<i64> {
        self.args.get(at)?.split('<').next()?.trim().parse().ok()
    }

    /// The path in an argument.
    pub(super) fn path(&self, at: usize) -> Option<String> {
        let (bytes, _) = string(self.args.get(at)?)?;
        Some(String::from_utf8_lossy(&bytes).into_owned())
    }

    /// Whether an argument has a flag.
    pub(super) fn has(&self, at: usize, flag: &str) -> bool {
        self.args.get(at).is_some_and(|flags| flags.split('|').any(|one| one == flag))
    }
}

/// The process of a line, and the line without process and time: `[pid  12] `, `12 `, `10:00:00.1 `, `1769000000.1 `.
pub(super) fn process(line: &str) -> (u64, &str) {
    let mut line = line.trim();
    let mut pid = 0;
    if let Some((found, rest)) = line.strip_prefix("[pid").and_then(|rest| rest.split_once(']')) {
        pid = found.trim().parse().unwrap_or(0);
        line = rest.trim_start();
    }
    loop {
        let Some((first, rest)) = line.split_once(' ') else {
            return (pid, line);
        };
        let is_time = first.ends_with(|c: char| c.is_ascii_digit())
            && first.bytes().all(|b| b.is_ascii_digit() || b == b':' || b == b'.' || b == b'+' || b == b'-');
        if !is_time || !first.starts_with(|c: char| c.is_ascii_digit() || c == '+') {
            return (pid, line);
        }
        if pid == 0 && first.bytes().all(|b| b.is_ascii_digit()) {
            pid = first.parse().unwrap_or(0);
        }
        line = rest.trim_start();
    }
}

/// The beginning of a call that returns on a later line.
pub(super) fn beginning(line: &str) -> Option<&str> {
    line.strip_suffix(" <unfinished ...>")
}

/// Whether a line without a call says something of the log or of a process.
pub(super) fn is_note(line: &str) -> bool {
    let is_of_log = line.starts_with("strace: ") || line.starts_with("[ Process PID=");
    // The result of a call that did not return is `?`.
    line.is_empty()
        || line.starts_with("---")
        || is_of_log
        || line.contains(") = ? ")
        || line.trim_end().ends_with(" = ?")
}

/// Whether a line is one of strace.
pub(super) fn is_of_strace(line: &str) -> bool {
    let (_, line) = process(line);
    if line.starts_with("<... ") && line.contains(" resumed>")
        || line.starts_with("+++ exited with")
        || line.starts_with("+++ killed by")
        || line.starts_with("--- SIG")
        || line.starts_with("strace: Process ")
    {
        return true;
    }
    let is_name = |name: &str| {
        !name.is_empty() && name.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'_')
    };
    line.split_once('(').is_some_and(|(name, rest)| {
        is_name(name) && (beginning(rest).is_some() || rest.contains(") = ") || rest.contains(")  "))
    })
}

/// A whole call.
pub(super) fn call(line: &str) -> Option<Call<'_>> {
    let (name, rest) = line.split_once('(')?;
    let (args, rest) = arguments(rest)?;
    let result = rest.trim_start().strip_prefix("= ")?;
    let end = result.find(|c: char| c == '<' || c.is_whitespace()).unwrap_or(result.len());
    let (number, rest) = result.split_at(end);
    let shown = rest.starts_with('<').then(|| shown_path(&rest[..end_of_path(rest)])).flatten();
    let result = match number.strip_prefix("0x") {
        _ if number == "-1" && rest.trim_start().starts_with("ENOENT") => NOT_FOUND,
        Some(_) => 0,
        None => number.parse().ok()?,
    };
    Some(Call { name, args, result, shown })
}

/// The arguments of a call, split at the commas outside strings, braces and paths of descriptors; and the text after them.
fn arguments(text: &str) -> Option<(Vec<&str>, &str)> {
    let bytes = text.as_bytes();
    let mut all = Vec::new();
    let (mut start, mut at, mut depth) = (0, 0, 0_u32);
    while let Some(byte) = bytes.get(at) {
        match byte {
            b'"' => at += end_of_string(&bytes[at..]) - 1,
            // `3</w/p>`, but not `1<<CAP_KILL`.
            b'<' if is_descriptor(&text[start..at]) && bytes.get(at + 1) != Some(&b'<') => {
                at += end_of_path(&text[at..]) - 1;
            }
            b'{' | b'[' | b'(' => depth += 1,
            b')' if depth == 0 => {
                all.push(text[start..at].trim());
                return Some((all, &text[at + 1..]));
            }
            b'}' | b']' | b')' => depth = depth.saturating_sub(1),
            b',' if depth == 0 => {
                all.push(text[start..at].trim());
                start = at + 1;
            }
            _ => {}
        }
        at += 1;
    }
    None
}

/// Whether a text ends with what `strace -y` shows a path after.
fn is_descriptor(text: &str) -> bool {
    text.ends_with(|c: char| c.is_ascii_digit()) || text.ends_with("AT_FDCWD")
}

/// The length of the string at the beginning of a text, with its quotes.
fn end_of_string(bytes: &[u8]) -> usize {
    let mut at = 1;
    while let Some(byte) = bytes.get(at) {
        match byte {
            b'"' => return at + 1,
            b'\\' => at += 2,
            _ => at += 1,
        }
    }
    bytes.len()
}

/// The length of the path at the beginning of a text, with `<` and `>`. Old versions of strace do not escape a `>` in it.
fn end_of_path(text: &str) -> usize {
    let bytes = text.as_bytes();
    let mut at = 1;
    while let Some(byte) = bytes.get(at) {
        let follows = bytes.get(at + 1).is_none_or(|next| b",)]}( ".contains(next));
        match byte {
            b'>' if follows => return at + 1,
            b'\\' => at += 2,
            _ => at += 1,
        }
    }
    bytes.len()
}

/// The path that `strace -y` shows after a descriptor: `3</home/u/p>`, `3</home/u/p>(deleted)`.
pub(super) fn shown_path(descriptor: &str) -> Option<String> {
    let (_, path) = descriptor.split_once('<')?;
    let (path, _) = path.rsplit_once('>')?;
    if !path.starts_with('/') {
        return None;
    }
    let mut bytes = Vec::new();
    let mut rest = path.as_bytes();
    while let Some((byte, after)) = rest.split_first() {
        rest = match byte {
            b'\\' => escaped(after, &mut bytes)?,
            byte => {
                bytes.push(*byte);
                after
            }
        };
    }
    Some(String::from_utf8_lossy(&bytes).into_owned())
}

/// The bytes of a string at the beginning of a text, and the text after it.
fn string(text: &str) -> Option<(Vec<u8>, &str)> {
    let mut rest = text.strip_prefix('"')?.as_bytes();
    let mut bytes = Vec::new();
    loop {
        let (byte, after) = rest.split_first()?;
        rest = match byte {
            // A quote is a whole character.
            b'"' => return Some((bytes, &text[text.len() - after.len()..])),
            b'\\' => escaped(after, &mut bytes)?,
            byte => {
                bytes.push(*byte);
                after
            }
        };
    }
}

/// Adds the byte that an escape stands for; what follows it.
fn escaped<'a>(rest: &'a [u8], bytes: &mut Vec<u8>) -> Option<&'a [u8]> {
    let (first, rest) = rest.split_first()?;
    match first {
        b'n' => bytes.push(b'\n'),
        b't' => bytes.push(b'\t'),
        b'r' => bytes.push(b'\r'),
        b'f' => bytes.push(0xc),
        b'v' => bytes.push(0xb),
        b'x' => {
            let (digits, rest) = rest.split_at_checked(2)?;
            let digits = std::str::from_utf8(digits).ok()?;
            bytes.push(u8::from_str_radix(digits, 16).ok()?);
            return Some(rest);
        }
        b'0'..=b'7' => {
            let more = rest.iter().take(2).take_while(|digit| (b'0'..=b'7').contains(digit)).count();
            let (more, rest) = rest.split_at(more);
            let value = more.iter().fold(u32::from(first - b'0'), |value, digit| value * 8 + u32::from(digit - b'0'));
            bytes.push(value as u8);
            return Some(rest);
        }
        other => bytes.push(*other),
    }
    Some(rest)
}

/// The bytes that an argument shows, a string or the buffers of `writev`; and whether the log cuts them. A cut buffer is as
/// long as the log says, and filled up with blanks.
pub(super) fn data(arg: &str, most: usize) -> (Vec<u8>, bool) {
    if let Some((bytes, rest)) = string(arg) {
        return (bytes, rest.starts_with("..."));
    }
    let (mut all, mut is_cut, mut rest) = (Vec::new(), false, arg);
    while let Some((_, buffer)) = rest.split_once("iov_base=") {
        let Some((bytes, after)) = string(buffer) else {
            return (all, true);
        };
        let before = all.len();
        all.extend(bytes);
        if after.starts_with("...") {
            is_cut = true;
            let own = after.split_once("iov_base=").map_or(after, |(own, _)| own);
            let length = own.split_once("iov_len=").and_then(|(_, length)| {
                let digits = length.bytes().take_while(u8::is_ascii_digit).count();
                length[..digits].parse::<usize>().ok()
            });
            let length = before.saturating_add(length.unwrap_or(0)).min(most);
            all.resize(all.len().max(length), b' ');
        }
        rest = after;
    }
    (all, is_cut)
}
