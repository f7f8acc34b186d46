//! Blanks comments and literals out of Rust, so that rules see code alone.

/// Replaces the text of comments, strings and characters by spaces. Quotes, line breaks and the
/// number of characters stay, so that places in the result are places in the source.
pub(super) fn blank(source: &str) -> String {
    let mut rest = Rest {
        characters: source.chars().collect(),
        at: 0,
        out: String::with_capacity(source.len()),
    };
    while let Some(character) = rest.peek(0) {
        let follows_name = rest.at > 0 && is_name(rest.characters[rest.at - 1]);
        match (character, rest.peek(1)) {
            ('/', Some('/')) => rest.blank_while(|rest| rest.peek(0) != Some('\n')),
            ('/', Some('*')) => rest.block_comment(),
            ('"', _) => rest.string(),
            ('r', Some('"' | '#')) if !follows_name => rest.raw_string(1),
            ('b' | 'c', Some('r')) if !follows_name => rest.raw_string(2),
            ('\'', _) => rest.character_or_lifetime(),
            _ => rest.keep(1),
        }
    }
    rest.out
}

pub(super) fn is_name(character: char) -> bool {
    character.is_alphanumeric() || character == '_'
}

struct Rest {
    characters: Vec<char>,
    at: usize,
    out: String,
}

impl Rest {
    fn peek(&self, ahead: usize) -> Option<char> {
        self.characters.get(self.at + ahead).copied()
    }

    fn keep(&mut self, count: usize) {
        let end = (self.at + count).min(self.characters.len());
        self.out.extend(&self.characters[self.at..end]);
        self.at = end;
    }

    fn blank(&mut self, count: usize) {
        let end = (self.at + count).min(self.characters.len());
        let hidden = self.characters[self.at..end].iter();
        self.out
            .extend(hidden.map(|&character| if character == '\n' { '\n' } else { ' ' }));
        self.at = end;
    }

    fn blank_while(&mut self, goes_on: impl Fn(&Self) -> bool) {
        while self.at < self.characters.len() && goes_on(self) {
            self.blank(1);
        }
    }

    fn block_comment(&mut self) {
        let mut depth = 0;
        loop {
            match (self.peek(0), self.peek(1)) {
                (Some('/'), Some('*')) => depth += 1,
                (Some('*'), Some('/')) => depth -= 1,
                (None, _) => return,
                _ => {
                    self.blank(1);
                    continue;
                }
            }
            self.blank(2);
            if depth == 0 {
                return;
            }
        }
    }

    fn string(&mut self) {
        self.keep(1);
        loop {
            match self.peek(0) {
                Some('\\') => self.blank(2),
                Some('"') | None => return self.keep(1),
                Some(_) => self.blank(1),
            }
        }
    }

    /// A raw string whose `prefix` characters come before its hashes; a raw name, `r#type`, and
    /// `br` at the start of a name are kept.
    fn raw_string(&mut self, prefix: usize) {
        let mut hashes = 0;
        while self.peek(prefix + hashes) == Some('#') {
            hashes += 1;
        }
        if self.peek(prefix + hashes) != Some('"') {
            return self.keep(1);
        }
        self.keep(prefix + hashes + 1);
        let is_end = |rest: &Self| {
            rest.peek(0) == Some('"') && (1..=hashes).all(|ahead| rest.peek(ahead) == Some('#'))
        };
        self.blank_while(|rest| !is_end(rest));
        self.keep(1 + hashes);
    }

    fn character_or_lifetime(&mut self) {
        let is_character = self.peek(1) == Some('\\') || self.peek(2) == Some('\'');
        self.keep(1);
        if !is_character {
            return;
        }
        if self.peek(0) == Some('\\') {
            self.blank(1);
        }
        self.blank(1);
        self.blank_while(|rest| rest.peek(0) != Some('\''));
        self.keep(1);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn comments_are_blanked_and_lines_stay() {
        assert_eq!(blank("a // b\nc"), "a     \nc");
        assert_eq!(blank("a /* b /* c */\n d */ e"), "a             \n      e");
        assert_eq!(blank("a /* open"), "a        ");
    }

    #[test]
    fn strings_keep_their_quotes() {
        assert_eq!(blank(r#"f("a\"b", c)"#), r#"f("    ", c)"#);
        assert_eq!(blank("r#\"a\"b\"# x"), "r#\"   \"# x");
        assert_eq!(blank("br\"//\" y"), "br\"  \" y");
        assert_eq!(blank("b\"ab\" c\"d\""), "b\"  \" c\" \"");
    }

    #[test]
    fn names_are_no_string_prefixes() {
        assert_eq!(blank("r#type bring for\"a\""), "r#type bring for\" \"");
    }

    #[test]
    fn characters_are_blanked_and_lifetimes_kept() {
        assert_eq!(blank(r"'a' '\'' '\u{41}' '"), r"' ' '  ' '      ' '");
        assert_eq!(blank("fn f<'a>(x: &'a str)"), "fn f<'a>(x: &'a str)");
        assert_eq!(blank("'\"' \"x\""), "' ' \" \"");
    }

    #[test]
    fn places_do_not_move() {
        let source = "let µ = \"é\"; // ö\nlet x;";
        assert_eq!(blank(source).chars().count(), source.chars().count());
    }
}
