"""The ground floor: config, errors, clocks, trace context, and who this process is. Imports no other room."""
