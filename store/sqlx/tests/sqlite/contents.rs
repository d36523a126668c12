//! What is in the file: who sees it, and what is not taken for something else.

use crate::common::contents;
use crate::support::File;

contents::contents_tests!(File);
