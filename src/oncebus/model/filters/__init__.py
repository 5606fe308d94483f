"""Service Bus rules: the SQL filter and action languages, correlation filters, and the copies a subscription gets."""
