//! What a worker says, one line each.

/// One line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Said {
    /// Connected, and waiting for the word.
    Ready,
    /// Somebody else is at it; asking again.
    Busy,
    /// It has the job, and waits for the word to finish.
    Started,
    /// There is nothing to do any more.
    AlreadyDone,
    /// It has finished.
    Done,
    /// It could not finish, for this reason. Nothing happened.
    Refused(String),
}

impl Said {
    /// Says it, as a worker.
    #[expect(clippy::print_stdout, reason = "standard output is how a worker speaks")]
    pub(crate) fn say(&self) {
        println!("{}", self.line());
    }

    /// Understands it, as whoever started the worker.
    pub(crate) fn parse(line: &str) -> Option<Self> {
        if let Some(why) = line.strip_prefix(REFUSED) {
            return Some(Self::Refused(why.into()));
        }
        let plain = [Self::Ready, Self::Busy, Self::Started, Self::AlreadyDone, Self::Done];
        plain.into_iter().find(|said| said.line() == line)
    }

    /// As it is told to people.
    pub(crate) fn line(&self) -> String {
        match self {
            Self::Ready => "ready".into(),
            Self::Busy => "busy".into(),
            Self::Started => "started".into(),
            Self::AlreadyDone => "already done".into(),
            Self::Done => "done".into(),
            Self::Refused(why) => format!("{REFUSED}{why}"),
        }
    }
}

const REFUSED: &str = "refused: ";
