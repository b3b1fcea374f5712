package winos

import "sync"

func newHost() Host {
	return Host{
		Services:    services{},
		Files:       files{},
		Environment: environment{},
		Trust:       trust{},
		System:      system{dismTurn: new(sync.Mutex)},
		Network:     network{},
		Routes:      routing{},
		Logs:        logs{},
		Programs:    launcher{},
	}
}
