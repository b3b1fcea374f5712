package main

import (
	"fmt"
	"os"
	"time"

	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/leaderelection/resourcelock"

	"github.com/windows-nodes/wmco/internal/contract"
)

// Times of the leader's lease, as OpenShift recommends. If the API server is away for a minute, the leader stays the
// leader. The lease is written twice a minute.
const (
	leaseDuration = 137 * time.Second
	renewDeadline = 107 * time.Second
	retryPeriod   = 26 * time.Second
)

// leaderLock creates the lock for the leader's lease. The holder's name is the pod's name, because a pod never runs
// two operators. So if a container is killed and started again in its pod, it continues at once instead of waiting
// until its own lease expires.
func leaderLock(restConfig *rest.Config, o options) (resourcelock.Interface, error) {
	if !o.leaderElects {
		return nil, nil
	}
	identity := o.pod
	if identity == "" {
		host, err := os.Hostname()
		if err != nil {
			return nil, fmt.Errorf("naming the leader: %w", err)
		}
		identity = fmt.Sprintf("%s_%d_%d", host, os.Getpid(), time.Now().UnixNano())
	}
	lock, err := resourcelock.NewFromKubeconfig(resourcelock.LeasesResourceLock, o.namespace, contract.LeaderLease,
		resourcelock.ResourceLockConfig{Identity: identity}, restConfig, renewDeadline)
	if err != nil {
		return nil, fmt.Errorf("making the leader's lock: %w", err)
	}
	return lock, nil
}
