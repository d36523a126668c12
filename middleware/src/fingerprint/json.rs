//! The canonical form of a JSON text: member order, white space and the way a string is escaped do not
//! matter; array order and the text of a number do.

use std::ops::Range;

use smallvec::SmallVec;

/// As deep as `serde_json` reads into a value. Deeper nesting would cost stack here and is refused by most
/// handlers anyway.
const DEEPEST: usize = 127;

/// Gives `take` the canonical form of `body`, never longer than `body`, in time linear in it but for the sorting of
/// names. A small body costs no allocation. None for what has none: invalid JSON, a member name that comes twice in one object, an unpaired
/// surrogate, nesting deeper than [`DEEPEST`].
pub(crate) fn canonical<T>(body: &[u8], take: impl FnOnce(&[u8]) -> T) -> Option<T> {
    let text = str::from_utf8(body).ok()?;
    let mut writer = Writer::of(text);
    let first = writer.peek()?;
    writer.value(first, 0)?;
    writer.settle();
    if !text.as_bytes()[writer.at..].iter().all(|byte| is_space(*byte)) {
        return None;
    }
    let written = written(text, (writer.run, writer.at), &writer.out);
    if writer.sorted.is_empty() {
        return Some(take(written));
    }
    let mut ordered = SmallVec::new();
    ordered.reserve_exact(written.len());
    writer.order(written, 0, 0..written.len(), &mut ordered);
    Some(take(&ordered))
}

/// Reads the text, all of whose grammar (RFC 8259) is checked on the way, and writes it without white space and with each string in its
/// one spelling, members still in the order they came in. Notes where they have to be ordered.
struct Writer<'t> {
    text: &'t str,
    at: usize,
    /// From here to `at` stands what is right as it is and has still to be copied. As long as it is 0 all is right as it is, and
    /// nothing is copied.
    run: usize,
    out: SmallVec<[u8; 512]>,
    /// The members of all objects that are open, innermost last.
    open: SmallVec<[Member; 16]>,
    /// All objects, by where they begin, but for those that are sorted and hold no others.
    objects: SmallVec<[Object; 4]>,
    /// The members of the objects that came unsorted, sorted.
    sorted: SmallVec<[Member; 16]>,
}

/// Where a member stands in the output.
#[derive(Clone, Copy)]
struct Member {
    start: usize,
    name_end: usize,
    end: usize,
    /// The name's first bytes, which settle most comparisons.
    prefix: u64,
    /// The first object that begins in it or after it.
    objects: usize,
}

/// Where an object's members stand in the output.
#[derive(Default)]
struct Object {
    start: usize,
    end: usize,
    /// Its members among the sorted ones; none when it came sorted.
    sorted: Range<usize>,
    /// The first object that begins after it.
    next: usize,
}

impl<'t> Writer<'t> {
    /// Field by field: what is made elsewhere and moved is 2 KB.
    #[inline]
    fn of(text: &'t str) -> Self {
        let (out, open, objects, sorted) = (SmallVec::new(), SmallVec::new(), SmallVec::new(), SmallVec::new());
        Self { text, at: 0, run: 0, out, open, objects, sorted }
    }

    fn value(&mut self, first: u8, depth: usize) -> Option<()> {
        match first {
            b'{' => self.object(depth + 1),
            b'[' => self.array(depth + 1),
            b'"' => self.string(),
            b't' => self.literal("true"),
            b'f' => self.literal("false"),
            b'n' => self.literal("null"),
            _ => self.number(),
        }
    }

    fn object(&mut self, depth: usize) -> Option<()> {
        if depth > DEEPEST {
            return None;
        }
        let first = self.open.len();
        let object = self.objects.len();
        self.objects.push(Object::default());
        self.at += 1; // {
        let mut next = self.peek()?;
        while next != b'}' || self.open.len() > first {
            let start = self.out_len();
            if next != b'"' {
                return None;
            }
            self.string()?;
            let name_end = self.out_len();
            if self.peek()? != b':' {
                return None;
            }
            self.at += 1;
            let objects = self.objects.len();
            let value = self.peek()?;
            self.value(value, depth)?;
            self.open.push(Member { start, name_end, end: self.out_len(), prefix: 0, objects });
            match self.peek()? {
                b',' => self.at += 1,
                b'}' => break,
                _ => return None,
            }
            next = self.peek()?;
        }
        if self.open.len() > first + 1 {
            self.sort(first, object)?;
        }
        self.open.truncate(first);
        if self.objects.len() == object + 1 && self.objects[object].sorted.is_empty() {
            self.objects.pop();
        }
        self.at += 1; // }
        Some(())
    }

    /// Notes the order of an object's members, which are the open ones from `first` on, unless they came in it.
    /// None when a name comes twice.
    fn sort(&mut self, first: usize, object: usize) -> Option<()> {
        self.settle();
        let written = written(self.text, (self.run, self.at), &self.out);
        let members = &mut self.open[first..];
        for member in members.iter_mut() {
            member.prefix = prefix(&written[member.start..], member.name_end - member.start);
        }
        let name = |member: &Member| &written[member.start..member.name_end];
        let by_name = |a: &Member, b: &Member| a.prefix.cmp(&b.prefix).then_with(|| name(a).cmp(name(b)));
        if members.is_sorted_by(|a, b| by_name(a, b).is_lt()) {
            return Some(());
        }
        let start = members[0].start;
        members.sort_unstable_by(by_name);
        if !members.is_sorted_by(|a, b| by_name(a, b).is_lt()) {
            return None;
        }
        let sorted = self.sorted.len();
        self.sorted.extend_from_slice(members);
        let sorted = sorted..self.sorted.len();
        self.objects[object] = Object { start, end: written.len(), sorted, next: self.objects.len() };
        Some(())
    }

    /// Copies a range of what was written with all members in order, where `object` is the first object that begins
    /// in the range or after it.
    fn order(&self, written: &[u8], mut object: usize, range: Range<usize>, ordered: &mut SmallVec<[u8; 512]>) {
        let mut at = range.start;
        while let Some(unsorted) = self.objects.get(object).filter(|object| object.start < range.end) {
            if unsorted.sorted.is_empty() {
                object += 1;
                continue;
            }
            ordered.extend_from_slice(&written[at..unsorted.start]);
            for (n, member) in self.sorted[unsorted.sorted.clone()].iter().enumerate() {
                if n > 0 {
                    ordered.push(b',');
                }
                self.order(written, member.objects, member.start..member.end, ordered);
            }
            at = unsorted.end;
            object = unsorted.next;
        }
        ordered.extend_from_slice(&written[at..range.end]);
    }

    fn array(&mut self, depth: usize) -> Option<()> {
        if depth > DEEPEST {
            return None;
        }
        self.at += 1; // [
        let mut next = self.peek()?;
        let mut is_empty = true;
        while next != b']' || !is_empty {
            self.value(next, depth)?;
            is_empty = false;
            match self.peek()? {
                b',' => self.at += 1,
                b']' => break,
                _ => return None,
            }
            next = self.peek()?;
        }
        self.at += 1; // ]
        Some(())
    }

    fn string(&mut self) -> Option<()> {
        let bytes = self.text.as_bytes();
        let start = self.at;
        let mut end = start + 1;
        let mut other_spelling = false;
        loop {
            end += string_special(bytes.get(end..)?)?;
            match (bytes[end], bytes.get(end + 1)) {
                (b'"', _) => break,
                (b'\\', Some(b'"' | b'\\' | b'b' | b'f' | b'n' | b'r' | b't')) => {}
                // All else has another spelling than what serde_json writes. It reads the digits, too.
                (b'\\', Some(b'/' | b'u')) => other_spelling = true,
                _ => return None,
            }
            end += 2;
        }
        if other_spelling {
            self.flush();
            let value: String = serde_json::from_str(self.text.get(start..=end)?).ok()?;
            serde_json::to_writer(&mut self.out, &value).ok()?;
            self.run = end + 1;
        }
        self.at = end + 1;
        Some(())
    }

    fn literal(&mut self, word: &str) -> Option<()> {
        let rest = self.text.as_bytes().get(self.at..)?;
        rest.starts_with(word.as_bytes()).then(|| self.at += word.len())
    }

    /// A number, by its text.
    fn number(&mut self) -> Option<()> {
        let bytes = self.text.as_bytes();
        let starts = |at: usize, with: &[u8]| bytes.get(at).is_some_and(|byte| with.contains(byte));
        let digits = |at: usize| Some(at + bytes.get(at..)?.iter().take_while(|byte| byte.is_ascii_digit()).count());
        let one_or_more = |at: usize| digits(at).filter(|end| *end > at);
        let mut at = self.at + usize::from(starts(self.at, b"-"));
        at = if starts(at, b"0") { at + 1 } else { one_or_more(at)? };
        if starts(at, b".") {
            at = one_or_more(at + 1)?;
        }
        if starts(at, b"eE") {
            at = one_or_more(at + 1 + usize::from(starts(at + 1, b"+-")))?;
        }
        self.at = at;
        Some(())
    }

    /// The next byte that is not white space.
    fn peek(&mut self) -> Option<u8> {
        let bytes = self.text.as_bytes();
        let mut byte = *bytes.get(self.at)?;
        if is_space(byte) {
            self.flush();
            while is_space(byte) {
                self.at += 1;
                byte = *bytes.get(self.at)?;
            }
            self.run = self.at;
        }
        Some(byte)
    }

    /// Copies what has still to be copied, if anything is.
    fn settle(&mut self) {
        if self.run > 0 {
            self.flush();
        }
    }

    fn flush(&mut self) {
        self.out.reserve_exact(self.text.len() - self.out.len());
        self.out.extend_from_slice(&self.text.as_bytes()[self.run..self.at]);
        self.run = self.at;
    }

    /// How long the output is once all is copied.
    fn out_len(&self) -> usize {
        self.out.len() + self.at - self.run
    }
}

/// What a settled writer has written: a copy, or the beginning of the text itself while all of it is right as it is.
fn written<'o>(text: &'o str, (run, at): (usize, usize), out: &'o [u8]) -> &'o [u8] {
    if run == 0 { &text.as_bytes()[..at] } else { out }
}

/// The first 8 of `length` bytes as a number that sorts as they do.
fn prefix(bytes: &[u8], length: usize) -> u64 {
    if let Some(first) = bytes.first_chunk() {
        let first = u64::from_be_bytes(*first);
        return if length >= 8 { first } else { first & !(u64::MAX >> (8 * length)) };
    }
    let mut first = [0; 8];
    first[..length].copy_from_slice(&bytes[..length]);
    u64::from_be_bytes(first)
}

fn is_space(byte: u8) -> bool {
    matches!(byte, b' ' | b'\n' | b'\r' | b'\t')
}

/// Where the first `"`, `\` or control character stands.
fn string_special(bytes: &[u8]) -> Option<usize> {
    const ONES: u64 = u64::MAX / 0xFF;
    // Exact up to and with the first such byte, which is all that is asked for.
    let below = |word: u64, limit: u8| word.wrapping_sub(ONES * u64::from(limit)) & !word & (ONES << 7);
    let is = |word: u64, byte: u8| below(word ^ (ONES * u64::from(byte)), 1);
    let (words, rest) = bytes.as_chunks();
    for (n, word) in words.iter().enumerate() {
        let word = u64::from_le_bytes(*word);
        let found = is(word, b'"') | is(word, b'\\') | below(word, b' ');
        if found != 0 {
            return Some(8 * n + found.trailing_zeros() as usize / 8);
        }
    }
    let at = rest.iter().position(|byte| matches!(byte, b'"' | b'\\' | ..b' '))?;
    Some(8 * words.len() + at)
}
