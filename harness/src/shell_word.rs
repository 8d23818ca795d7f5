//! Words of printed commands as a shell takes them.

/// A word of a command, in quotes if a shell would change it.
pub fn shell_word(word: &str) -> String {
    let is_plain = |char: char| char.is_ascii_alphanumeric() || "._-/:=@%+,~".contains(char);
    if !word.is_empty() && word.chars().all(is_plain) {
        word.to_owned()
    } else {
        format!("'{}'", word.replace('\'', r"'\''"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_shell_gets_back_each_word() {
        for word in ["a/b.jsonl", "my file", "it's", "$(x)", "*.jsonl", ""] {
            let output =
                std::process::Command::new("sh").args(["-c", &format!("printf %s {}", shell_word(word))]).output();
            assert_eq!(String::from_utf8(output.unwrap().stdout).unwrap(), word);
        }
        assert_eq!(shell_word("a/b-c_1.jsonl"), "a/b-c_1.jsonl");
    }
}
