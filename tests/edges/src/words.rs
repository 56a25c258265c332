//! A Rust file as words: names and punctuation, without comments, strings and the inside of numbers.

/// One word of a source file.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Word {
    /// A name, a number, `::`, or one character.
    pub text: String,
    /// Its line, from 1.
    pub line: usize,
}

/// The words of `source`, without code under `#[cfg(test)]`.
pub fn shipped(source: &str) -> Vec<Word> {
    without_tests(all(source))
}

/// The words of `source`.
fn all(source: &str) -> Vec<Word> {
    let text: Vec<char> = source.chars().collect();
    let (mut words, mut at, mut line) = (Vec::new(), 0, 1);
    while at < text.len() {
        let end = match text[at] {
            '/' if text.get(at + 1) == Some(&'/') => end_of_line(&text, at),
            '/' if text.get(at + 1) == Some(&'*') => end_of_comment(&text, at),
            '"' => end_of_string(&text, at),
            '\'' => end_of_quote(&text, at),
            'r' | 'b' | 'c' if end_of_prefixed(&text, at).is_some() => {
                end_of_prefixed(&text, at).unwrap_or(at + 1)
            }
            c if is_name(c) => {
                let end = (at..text.len()).find(|&i| !is_name(text[i]));
                let end = end.unwrap_or(text.len());
                let text = text[at..end].iter().collect();
                words.push(Word { text, line });
                end
            }
            ':' if text.get(at + 1) == Some(&':') => {
                let text = "::".to_owned();
                words.push(Word { text, line });
                at + 2
            }
            c => {
                if !c.is_whitespace() {
                    let text = c.to_string();
                    words.push(Word { text, line });
                }
                at + 1
            }
        };
        line += text[at..end].iter().filter(|&&c| c == '\n').count();
        at = end;
    }
    words
}

fn is_name(c: char) -> bool {
    c.is_alphanumeric() || c == '_'
}

fn end_of_line(text: &[char], at: usize) -> usize {
    let end = (at..text.len()).find(|&i| text[i] == '\n');
    end.unwrap_or(text.len())
}

/// Comments of this kind may be nested.
fn end_of_comment(text: &[char], mut at: usize) -> usize {
    let mut depth = 0;
    while at < text.len() {
        match (text[at], text.get(at + 1)) {
            ('/', Some('*')) => (depth, at) = (depth + 1, at + 2),
            ('*', Some('/')) => (depth, at) = (depth - 1, at + 2),
            _ => at += 1,
        }
        if depth == 0 {
            break;
        }
    }
    at
}

fn end_of_string(text: &[char], at: usize) -> usize {
    let mut at = at + 1;
    while at < text.len() {
        match text[at] {
            '"' => return at + 1,
            '\\' => at += 2,
            _ => at += 1,
        }
    }
    text.len()
}

/// A character literal, or the mark of a lifetime.
fn end_of_quote(text: &[char], at: usize) -> usize {
    match (text.get(at + 1), text.get(at + 2)) {
        (Some('\\'), _) => {
            let end = (at + 3..text.len()).find(|&i| text[i] == '\'');
            end.map_or(text.len(), |end| end + 1)
        }
        (Some(_), Some('\'')) => at + 3,
        _ => at + 1,
    }
}

/// The end of a literal such as `b"..."` or `r#"..."#`, if there is one at `at`.
fn end_of_prefixed(text: &[char], at: usize) -> Option<usize> {
    let mut quote = at;
    let mut raw = false;
    while let Some(c) = text.get(quote).filter(|c| "rbc".contains(**c)) {
        raw |= *c == 'r';
        quote += 1;
    }
    if quote - at > 2 {
        return None;
    }
    let hashes = text[quote..].iter().take_while(|&&c| c == '#').count();
    match text.get(quote + hashes)? {
        '"' if raw => {
            let end: Vec<char> = std::iter::once('"')
                .chain(std::iter::repeat_n('#', hashes))
                .collect();
            let body = quote + hashes + 1;
            let length = text[body..].windows(end.len()).position(|w| w == end);
            Some(length.map_or(text.len(), |length| body + length + end.len()))
        }
        '"' if hashes == 0 => Some(end_of_string(text, quote)),
        '\'' if hashes == 0 => Some(end_of_quote(text, quote)),
        _ => None,
    }
}

const TEST: [&str; 7] = ["#", "[", "cfg", "(", "test", ")", "]"];

fn without_tests(words: Vec<Word>) -> Vec<Word> {
    let mut kept = Vec::with_capacity(words.len());
    let mut at = 0;
    while at < words.len() {
        if is_at(&words, at, &TEST) {
            at = end_of_item(&words, at + TEST.len());
        } else {
            kept.push(words[at].clone());
            at += 1;
        }
    }
    kept
}

/// The modules in separate files that `source` declares for tests only.
pub fn test_modules(source: &str) -> Vec<String> {
    let words = all(source);
    let mut found = Vec::new();
    for start in 0..words.len() {
        if is_at(&words, start, &TEST) {
            let item = &words[start..end_of_item(&words, start + TEST.len())];
            let module = item.windows(3).find(|w| w[0].text == "mod");
            found.extend(
                module
                    .filter(|w| w[2].text == ";")
                    .map(|w| w[1].text.clone()),
            );
        }
    }
    found
}

/// Whether the words at `at` are these.
pub fn is_at(words: &[Word], at: usize, texts: &[&str]) -> bool {
    let there = words.get(at..at + texts.len());
    there.is_some_and(|there| {
        there
            .iter()
            .zip(texts)
            .all(|(word, text)| word.text == *text)
    })
}

/// The position after the item, field or variant that begins at `at`, attributes before it included.
fn end_of_item(words: &[Word], mut at: usize) -> usize {
    while is_at(words, at, &["#", "["]) {
        at = end_of_group(words, at + 1);
    }
    let item = words[at.min(words.len())..].iter().take(6).any(|word| {
        let item = ["fn", "mod", "use", "impl", "struct", "enum", "trait"];
        let more = ["const", "static", "type", "macro_rules", "let"];
        item.contains(&word.text.as_str()) || more.contains(&word.text.as_str())
    });
    while let Some(word) = words.get(at) {
        match word.text.as_str() {
            "{" => {
                let end = end_of_group(words, at);
                // An expression or a list of names continues to its semicolon.
                match words.get(end).map(|word| word.text.as_str()) {
                    Some(";" | ",") => return end + 1,
                    _ => return end,
                }
            }
            "(" | "[" => at = end_of_group(words, at),
            ";" => return at + 1,
            "," if !item => return at + 1,
            "}" => return at,
            _ => at += 1,
        }
    }
    at
}

/// The position after the bracket that closes the one at `at`.
pub fn end_of_group(words: &[Word], at: usize) -> usize {
    let mut depth = 0;
    for (i, word) in words.iter().enumerate().skip(at) {
        match word.text.as_str() {
            "(" | "[" | "{" => depth += 1,
            ")" | "]" | "}" => depth -= 1,
            _ => {}
        }
        if depth == 0 {
            return i + 1;
        }
    }
    words.len()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn texts(source: &str) -> String {
        let words: Vec<String> = shipped(source).into_iter().map(|w| w.text).collect();
        words.join(" ")
    }

    #[test]
    fn comments_and_literals_are_no_words() {
        let source = r##"a /* b /* c */ d */ "e \" f" 'g' '\'' 'life r"h" r#"i " j"# b'k' b"l" // m
n::o"##;
        assert_eq!(texts(source), "a life n :: o");
        assert_eq!(shipped(source).last().unwrap().line, 2);
    }

    #[test]
    fn names_that_begin_like_literals_are_names() {
        assert_eq!(texts("r b rb bread r#type"), "r b rb bread r # type");
    }

    #[test]
    fn what_only_tests_have_is_left_out() {
        let source = "a; #[cfg(test)] mod tests { b(); } c; #[cfg(test)] #[path = \"x\"] mod d; e;
            #[cfg(test)] pub(crate) use f::{g, h}; struct I { #[cfg(test)] j: K<L>, m: N }
            #[cfg(test)] impl O<P, Q> { fn r() {} } s";
        assert_eq!(texts(source), "a ; c ; e ; struct I { m : N } s");
        assert_eq!(test_modules(source), ["d"]);
    }
}
