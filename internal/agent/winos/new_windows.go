package winos

func newHost() Host {
	return Host{
		Services:    services{},
		Files:       files{},
		Environment: environment{},
		Trust:       trust{},
		System:      system{},
		Network:     network{},
	}
}
