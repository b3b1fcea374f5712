package main

import (
	"fmt"
	"os"
	"time"

	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/leaderelection/resourcelock"

	"github.com/windows-nodes/wmco/internal/contract"
)

// Times of the leader's lease. OpenShift recommends these times. With them, the operator remains the leader if the API
// server can't be reached for a minute, and writes the lease about twice a minute.
const (
	leaseDuration = 137 * time.Second
	renewDeadline = 107 * time.Second
	retryPeriod   = 26 * time.Second
)

// leaderLock returns the lock for leader election. Without leader election, the lock is nil. The name of the pod
// identifies the leader, because a pod never runs two operators. So if the container is killed and starts again in the
// same pod, the operator continues at once and doesn't wait until its own lease expires.
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
