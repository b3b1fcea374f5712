// Package sim simulates a Windows Server machine in this process. A simulated machine has the same interfaces that
// package winos has for real Windows.
package sim
