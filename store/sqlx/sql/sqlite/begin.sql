-- IMMEDIATE: a deferred transaction that reads first and writes later fails at once when somebody else wrote in
-- between, whatever the busy timeout is.
BEGIN IMMEDIATE;
