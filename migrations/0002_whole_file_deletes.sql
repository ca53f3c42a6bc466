-- A segment holds one job. Without inlined deletes, deleting a job's rows removes its files from the catalog as a whole.
CALL lake.set_option('data_inlining_row_limit', 0, table_name => 'events');
