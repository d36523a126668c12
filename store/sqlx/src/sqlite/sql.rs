//! The statements, a file each. Some are sent two at a time: each trip to a connection's thread costs as much as a
//! small statement. When the first fails, the second is not carried out.

macro_rules! statements {
    ($($name:ident = $($file:literal)+;)*) => {
        $(pub(super) const $name: &str = concat!($(include_str!(concat!("../../sql/sqlite/", $file)),)+);)*
    };
}

statements! {
    BEGIN = "begin.sql";
    BEGIN_AND_DELETE_LEASES = "begin.sql" "lease_delete.sql";
    BEGIN_AND_READ_DUE = "begin.sql" "due_records.sql";
    BEGIN_AND_READ_LEASE = "begin.sql" "lease_read.sql";
    BEGIN_AND_READ_RECORD = "begin.sql" "read_record.sql";
    BEGIN_FOR_EFFECT = "begin.sql" "savepoint.sql";
    CALL_DELETE = "call_delete.sql";
    CALL_LIST = "call_list.sql";
    CALL_READ = "call_read.sql";
    CALL_WRITE = "call_write.sql";
    CLAIM = "claim.sql";
    COMMIT = "commit.sql";
    COMPLETE = "complete.sql";
    DELETE_RECORD = "delete_record.sql";
    DROP_PAYLOAD = "drop_payload.sql";
    FILE_AND_JOURNAL = "file_and_journal.sql";
    INSPECT_RECORD = "inspect_record.sql";
    KEEP_CLOCK = "keep_clock.sql";
    LEASE_READ = "lease_read.sql";
    LIST_RECORDS = "list_records.sql";
    MIGRATED = "migrated.sql";
    POSTPONE_RECORD = "postpone_record.sql";
    RAISE_FLOOR = "raise_floor.sql";
    READ_DUE = "due_records.sql";
    READ_RECORD = "read_record.sql";
    READ_RECORD_AND_CLAIM = "read_record.sql" "claim.sql";
    RELEASE_AND_READ_RECORD = "release.sql" "read_record.sql";
    ROLLBACK = "rollback.sql";
    STEP_DELETE = "step_delete.sql";
    STEP_INSPECT = "step_inspect.sql";
    STEP_LIST = "step_list.sql";
    STEP_READ = "step_read.sql";
    STEP_WRITE = "step_write.sql";
    TOUCH = "touch.sql";
    TRUNCATE_LOG = "truncate_log.sql";
    VERSION = "version.sql";
    WRITE_LEASE_AND_COMMIT = "lease_write.sql" "commit.sql";
    WRITE_RECORD = "write_record.sql";
    WRITE_RECORD_AND_COMMIT = "write_record.sql" "commit.sql";
}
