//! Java's `.properties` syntax, as `server.properties` is written: `key=value`, `key: value` or
//! `key value`, comments after `#` or `!`, `\` escapes, and lines continued by a final `\`.

/// One setting of a file.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Property {
    pub(super) name: String,
    pub(super) value: String,
    /// The line on which it begins, from 1.
    pub(super) line: usize,
}

/// All settings in order, or the line of the first malformed `\u` escape.
pub(super) fn parse(text: &str) -> Result<Vec<Property>, usize> {
    let mut settings = Vec::new();
    let mut lines = text.lines().enumerate();
    while let Some((index, first)) = lines.next() {
        let line = index + 1;
        let first = first.trim_start_matches(BLANKS);
        if first.is_empty() || first.starts_with(['#', '!']) {
            continue;
        }
        let mut logical = first.to_owned();
        while ends_in_continuation(&logical) {
            logical.pop();
            let Some((_, next)) = lines.next() else { break };
            logical.push_str(next.trim_start_matches(BLANKS));
        }
        let (name, value) = split(&logical);
        let (Some(name), Some(value)) = (unescape(name), unescape(value)) else {
            return Err(line);
        };
        settings.push(Property { name, value, line });
    }
    Ok(settings)
}

const BLANKS: [char; 3] = [' ', '\t', '\x0c'];

/// An odd number of backslashes at the end: the last one is not itself escaped.
fn ends_in_continuation(line: &str) -> bool {
    line.bytes().rev().take_while(|&b| b == b'\\').count() % 2 == 1
}

/// The name ends at the first unescaped separator; blanks around `=` or `:` belong to neither side.
fn split(line: &str) -> (&str, &str) {
    let mut escaped = false;
    let end = line.find(|c: char| {
        let separates = !escaped && (BLANKS.contains(&c) || c == '=' || c == ':');
        escaped = !escaped && c == '\\';
        separates
    });
    let Some(end) = end else { return (line, "") };
    let rest = line[end..].trim_start_matches(BLANKS);
    let rest = rest.strip_prefix(['=', ':']).unwrap_or(rest);
    (&line[..end], rest.trim_start_matches(BLANKS))
}

/// Resolves `\t \n \r \f \uXXXX`; any other escaped character stands for itself.
fn unescape(text: &str) -> Option<String> {
    let mut out = String::with_capacity(text.len());
    let mut chars = text.chars();
    while let Some(c) = chars.next() {
        if c != '\\' {
            out.push(c);
            continue;
        }
        match chars.next() {
            Some('t') => out.push('\t'),
            Some('n') => out.push('\n'),
            Some('r') => out.push('\r'),
            Some('f') => out.push('\x0c'),
            Some('u') => {
                let digits = chars.as_str().get(..4)?;
                let code = digits
                    .chars()
                    .try_fold(0, |code, digit| Some(code * 16 + digit.to_digit(16)?))?;
                out.push(char::from_u32(code)?);
                chars = chars.as_str()[4..].chars();
            }
            Some(other) => out.push(other),
            None => {}
        }
    }
    Some(out)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn pairs(text: &str) -> Vec<(String, String)> {
        let settings = parse(text).expect("well formed");
        settings.into_iter().map(|p| (p.name, p.value)).collect()
    }

    fn pair(name: &str, value: &str) -> (String, String) {
        (name.to_owned(), value.to_owned())
    }

    #[test]
    fn each_separator_ends_the_name_and_blanks_around_it_vanish() {
        let expected = vec![
            pair("a", "1"),
            pair("b", "2"),
            pair("c", "3"),
            pair("d", "= 4"),
            pair("e", ""),
        ];
        assert_eq!(pairs("a=1\n  b : 2\nc 3\nd = = 4\ne"), expected);
    }

    #[test]
    fn comments_and_empty_lines_are_skipped_but_counted() {
        let settings = parse("# one\n\n! two\r\n  key=v # not a comment\n").expect("well formed");
        assert_eq!(settings.len(), 1);
        assert_eq!(
            (settings[0].line, settings[0].value.as_str()),
            (4, "v # not a comment")
        );
    }

    #[test]
    fn a_final_backslash_joins_lines_and_an_escaped_one_does_not() {
        assert_eq!(
            pairs("a=x,\\\n   y\nb=z\\\\\nc=1"),
            [pair("a", "x,y"), pair("b", "z\\"), pair("c", "1")]
        );
    }

    #[test]
    fn escapes_are_resolved_and_a_broken_one_names_its_line() {
        assert_eq!(pairs("a\\=b=\\u0041\\t\\q"), [pair("a=b", "A\tq")]);
        assert_eq!(parse("x=1\ny=\\u00g0"), Err(2));
        assert_eq!(parse("y=\\u12"), Err(1));
    }

    proptest! {
        #[test]
        fn any_text_parses_or_is_refused_without_panic(text in "[a-z=:\\\\u0-9 \n\u{e9}]{0,80}") {
            let _ = parse(&text);
        }
    }
}
