//! A configuration file without comments and secrets.

use toml::{Table, Value};

use super::pseudonyms::REMOVED;

/// The keys and values of the file. Comments are left out: they may hold anything.
///
/// # Errors
/// The file is no TOML. The text has no line of the file.
pub fn without_secrets(text: &str) -> Result<String, String> {
    let table = text.parse::<Table>().map_err(|error| {
        let place = error.span().map_or(0, |span| span.start);
        let line = text
            .get(..place)
            .map_or(1, |before| before.lines().count().max(1));
        format!("line {line}: {}", error.message())
    })?;
    let mut value = Value::Table(table);
    remove_secrets(&mut value);
    toml::to_string(&value).map_err(|error| error.to_string())
}

fn remove_secrets(value: &mut Value) {
    match value {
        Value::Table(table) => {
            for (key, value) in table {
                if is_secret(key, value) {
                    *value = Value::String(REMOVED.to_owned());
                }
                remove_secrets(value);
            }
        }
        Value::Array(values) => values.iter_mut().for_each(remove_secrets),
        _ => {}
    }
}

fn is_secret(key: &str, value: &Value) -> bool {
    match (key, value) {
        // The path of a file, which stays. Anything else is a key at a wrong place.
        ("management_key", value) => !value.as_str().is_some_and(|path| path.starts_with('/')),
        // No program of ibtap has such keys, but a file may.
        (key, _) => {
            let key = key.to_lowercase();
            let words = ["secret", "pass", "private", "token", "psk"];
            words.iter().any(|word| key.contains(word))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_example_stays_apart_from_its_comments() {
        for text in [
            include_str!("../../../docs/ibtapd.example.toml"),
            include_str!("../../../docs/ibtap-em.example.toml"),
        ] {
            let kept = without_secrets(text).unwrap();
            let parse = |text: &str| text.parse::<Table>().unwrap();
            assert_eq!(parse(&kept), parse(text), "{kept}");
            assert!(!kept.contains('#'), "{kept}");
        }
    }

    #[test]
    fn secrets_and_comments_are_left_out() {
        let text = "# password: hunter2\nsocket = \"/run/s\"\nPrivateKey = \"hunter2\"\n\
                    [port.eth0]\nmanagement_key = \"hunter2\" # hunter2\npkeys = [\"0x8001\"]\n\
                    [port.eth1]\nmanagement_key = \"/etc/ibtap/key\"\n\
                    [[vnic]]\nnested = [{ my_token = [\"hunter2\"] }]\n";
        let kept = without_secrets(text).unwrap();
        assert!(!kept.contains("hunter2"), "{kept}");
        for stays in ["socket = \"/run/s\"", "0x8001", "\"/etc/ibtap/key\""] {
            assert!(kept.contains(stays), "{kept}");
        }
        assert_eq!(kept.matches(REMOVED).count(), 3, "{kept}");
    }

    #[test]
    fn the_error_of_a_broken_file_has_no_line_of_it() {
        let error = without_secrets("a = 1\nmanagement_key = \"hunter2\n").unwrap_err();
        assert!(error.starts_with("line 2: "), "{error}");
        assert!(!error.contains("hunter2"), "{error}");
    }
}
