"""Everything durable of a broker: the inbox, the outbox, the store and the layout of the data folder."""
