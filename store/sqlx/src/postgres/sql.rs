//! The statements, a file each.

macro_rules! statements {
    ($($name:ident = $file:literal;)*) => {
        $(pub(super) const $name: &str = include_str!(concat!("../../sql/postgres/", $file));)*
    };
}

statements! {
    BEGIN = "begin.sql";
    BEGIN_READ_COMMITTED = "begin_read_committed.sql";
    BEGIN_REPEATABLE_READ = "begin_repeatable_read.sql";
    BEGIN_SERIALIZABLE = "begin_serializable.sql";
    CALL_DELETE = "call_delete.sql";
    CALL_LIST = "call_list.sql";
    CALL_READ = "call_read.sql";
    CALL_WRITE = "call_write.sql";
    CLAIM = "claim.sql";
    CLAIM_ALL = "claim_all.sql";
    COMPLETE = "complete.sql";
    COMPLETE_ALL = "complete_all.sql";
    DELETE_RECORDS = "delete_records.sql";
    DROP_PAYLOADS = "drop_payloads.sql";
    DUE_RECORDS = "due_records.sql";
    INSERT_RECORD = "insert_record.sql";
    INSPECT_RECORD = "inspect_record.sql";
    KEEP_CLOCK = "keep_clock.sql";
    LEASE_DELETE = "lease_delete.sql";
    LEASE_INSERT = "lease_insert.sql";
    LEASE_LOCK = "lease_lock.sql";
    LEASE_READ = "lease_read.sql";
    LEASE_REPLACE = "lease_replace.sql";
    LEASE_UPDATE = "lease_update.sql";
    LIMIT_IDLENESS = "limit_idleness.sql";
    LIST_RECORDS = "list_records.sql";
    LOCK_RECORD = "lock_record.sql";
    MIGRATED = "migrated.sql";
    MIGRATE_ALONE = "migrate_alone.sql";
    POSTPONE_RECORDS = "postpone_records.sql";
    RAISE_FLOOR = "raise_floor.sql";
    READ_RECORD = "read_record.sql";
    READ_RECORDS = "read_records.sql";
    RENEW = "renew.sql";
    STEP_DELETE = "step_delete.sql";
    STEP_INSPECT = "step_inspect.sql";
    STEP_LIST = "step_list.sql";
    STEP_READ = "step_read.sql";
    STEP_WRITE = "step_write.sql";
    UPDATE_RECORD = "update_record.sql";
    VERSION = "version.sql";
}
